"""`import sentence_experts.register`: stock loaders then know the model types with experts.

The import takes as long as that of transformers and torch. It is not needed for `sentence_experts.load`.
"""

from sentence_experts.models.architectures.registration import register

register()
