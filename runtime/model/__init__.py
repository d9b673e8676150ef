"""Parts of a live model: blocks, batches, precision, loss, optimizer, operations."""

from .batches import (
    Batch,
    SampleCounter,
    first_samples,
    first_tensor,
    is_slice,
    map_tensors,
    split,
    tensors,
    tensors_in,
    to_device,
)
from .blocks import (
    EMBEDDING,
    HEAD,
    MODEL,
    REST,
    BlockList,
    ForeignBlock,
    Piece,
    bytes_per_parameter,
    find_block_lists,
    repeated_blocks,
    vocabulary_size,
)
from .copies import SharedByCopies, stay_out_of_scripts
from .experts import find_experts
from .flops import device_of, flop_counter, tensor_bytes, weights_of
from .loss import LossFunction, model_loss
from .model_source import ModelSource, TrainingParts, build_model, held_bytes
from .modes import evaluation_mode
from .on_cpu import cuda_as_cpu, run_on_cpu
from .optimizers import MakeOptimizer, base_learning_rate, optimizer_maker
from .precision import DTYPES, LossScale, compute_in, precision_of
