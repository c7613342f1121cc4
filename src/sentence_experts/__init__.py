"""Mixture-of-experts text embeddings.

`import sentence_experts` is light: torch and transformers load when first needed. It also registers the
package's model types with transformers (now, or when transformers is imported), so that a stock
`SentenceTransformer(path)` loads a saved model without `trust_remote_code`.
"""

from __future__ import annotations

__version__ = "0.1.0"
