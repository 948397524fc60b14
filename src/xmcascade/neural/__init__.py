"""Texts become tokens, tokens features, features scores of labels: all learnt together (extra `neural`)."""

from xmcascade.neural.attention import AttentionLevel, AttentionStage
from xmcascade.neural.cascade import Cascade, LevelLoss, Truth
from xmcascade.neural.choosing import CascadeTraining, Powers, Trial
from xmcascade.neural.encoder import Encoder, Pooling
from xmcascade.neural.heads import Head, RowOptimizer, Shortlist, row_bytes
from xmcascade.neural.networks import NETWORKS, ConvNetwork, LstmNetwork, Network
from xmcascade.neural.onnx import Graph, quantised, written
from xmcascade.neural.reader import Reader, torch_threads
from xmcascade.neural.stage import Stage
from xmcascade.neural.start import learn_heads, new_rows, start_biases, start_rows
from xmcascade.neural.tokens import TokenStore, batches, cutting, padded
from xmcascade.neural.torch_heads import TorchHead
from xmcascade.neural.training import Training, TrainingSettings, schedule

__all__ = [
    "NETWORKS",
    "AttentionLevel",
    "AttentionStage",
    "Cascade",
    "CascadeTraining",
    "ConvNetwork",
    "Encoder",
    "Graph",
    "Head",
    "LevelLoss",
    "LstmNetwork",
    "Network",
    "Pooling",
    "Powers",
    "Reader",
    "RowOptimizer",
    "Shortlist",
    "Stage",
    "TokenStore",
    "TorchHead",
    "Training",
    "TrainingSettings",
    "Trial",
    "Truth",
    "batches",
    "cutting",
    "learn_heads",
    "new_rows",
    "padded",
    "quantised",
    "row_bytes",
    "schedule",
    "start_biases",
    "start_rows",
    "torch_threads",
    "written",
]
