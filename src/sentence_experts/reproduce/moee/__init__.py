"""Recipes on language models with experts (MoEE): their evaluation beside the published one."""
