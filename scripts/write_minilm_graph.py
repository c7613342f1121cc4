"""Write the graph of the packaged all-MiniLM-L6-v2 without its weights, which are read from the package.

    python scripts/write_minilm_graph.py

makes src/sentence_experts/models/minilm/ anew: model.onnx, whose weights are places in model.safetensors,
and graph.json. By them `minilm` encodes where torch is not installed.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import sentence_experts as se
from sentence_experts.models.sources import GRAPH_FILE, minilm_path

HERE = Path(se.__file__).parent / "models" / "minilm"
WEIGHTS = "model.safetensors"
LARGE = 100  # numbers; smaller constants stay in the graph


def main() -> None:
    """Export the model, and take its weights out of the graph."""
    file = Path(minilm_path()) / WEIGHTS
    data = file.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header, data = json.loads(data[8:begin]), data[begin:]
    header.pop("__metadata__", None)
    with tempfile.TemporaryDirectory() as folder:
        se.export("minilm", folder + "/graph", format="onnx")
        model = onnx.load(folder + "/graph/model.onnx")
        record = json.loads(Path(folder, "graph", GRAPH_FILE).read_text("utf-8"))
    known = {}
    for name, each in header.items():
        if each["dtype"] == "F32":
            start, end = each["data_offsets"]
            values = np.frombuffer(data[start:end], np.float32).reshape(each["shape"])
            known[values.shape, values.tobytes()] = (name, False)
            if values.ndim == 2:
                known.setdefault((values.T.shape, values.T.tobytes()), (name, True))
    graph, kept, nodes, turned = model.graph, {}, [], {}
    for constant in graph.initializer:
        values = numpy_helper.to_array(constant)
        found = known.get((values.shape, values.tobytes())) if values.size > LARGE else None
        if found is None:
            kept[constant.name] = constant
            continue
        name, is_turned = found
        start, end = header[name]["data_offsets"]
        kept[name] = _placed(name, header[name]["shape"], begin + start, end - start)
        if is_turned:
            turned[constant.name] = name
        else:
            nodes.append(helper.make_node("Identity", [name], [constant.name]))
    for node in graph.node:
        node.ClearField("doc_string")
        del node.metadata_props[:]
        if node.op_type == "MatMul" and node.input[1] in turned:  # a Transpose would copy the weights
            node.op_type, node.domain, node.input[1] = "FusedMatMul", "com.microsoft", turned[node.input[1]]
            node.attribute.append(helper.make_attribute("transB", 1))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    nodes += graph.node
    for field, values in (("initializer", kept.values()), ("node", nodes), ("value_info", ())):
        graph.ClearField(field)
        getattr(graph, field).extend(values)
    graph.ClearField("metadata_props")
    model.ClearField("metadata_props")
    HERE.mkdir(exist_ok=True)
    (HERE / "model.onnx").write_bytes(model.SerializeToString())
    (HERE / GRAPH_FILE).write_text(json.dumps(record, indent=1) + "\n", "utf-8")


def _placed(name: str, shape: list[int], offset: int, length: int) -> TensorProto:
    """Return a constant that is a place in the file of weights."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": WEIGHTS, "offset": offset, "length": length}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


if __name__ == "__main__":
    main()
