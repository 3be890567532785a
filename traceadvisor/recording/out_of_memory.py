"""Recognises errors that say that memory ran out, of the device or the machine, by whichever library."""

from __future__ import annotations

_WORDS = (
    "outofmemory",  # torch.OutOfMemoryError, cudaErrorOutOfMemory, hipErrorOutOfMemory
    "out of memory",
    "errormemoryallocation",  # cudaErrorMemoryAllocation and HIP's
    "alloc_failed",  # CUBLAS_STATUS_ALLOC_FAILED; so do cuDNN, cuSOLVER, cuSPARSE, cuFFT and hipBLAS
    "allocation_failed",  # CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED of cuDNN 9
    "statusallocfailed",  # miopenStatusAllocFailed
    "rocblas_status_memory_error",
    "unable to find an engine to execute",  # cuDNN, where no algorithm gets the memory that it needs
    "can't allocate memory",
    "cannot allocate memory",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, in this error or one that led to it."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        if isinstance(one, MemoryError) or says_out_of_memory(f"{type(one).__name__}: {one}"):
            return True
        one = one.__cause__ or one.__context__
    return False


def says_out_of_memory(text: str) -> bool:
    """Whether the class and message of an error say that memory ran out."""
    text = text.lower()
    return any(word in text for word in _WORDS)
