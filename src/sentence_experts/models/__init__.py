"""Encoders with experts: pretrained BERT, ModernBERT and NomicBERT whose blocks hold one expert per route."""
