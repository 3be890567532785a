import pytest
import torch

from traceadvisor.recording.out_of_memory import is_out_of_memory


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        RuntimeError("FIND was unable to find an engine to execute this computation"),
        RuntimeError("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`"),
        RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"),
        RuntimeError("CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`"),
        RuntimeError("HIP error: out of memory"),
        RuntimeError("MIOpen Error: miopenStatusAllocFailed"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried"),
        MemoryError(),
    ],
    ids=str,
)
def test_each_library_says_in_its_own_words_that_memory_ran_out(error: Exception) -> None:
    assert is_out_of_memory(error)


def test_an_error_that_memory_led_to_counts() -> None:
    error = ValueError("training failed")
    error.__cause__ = torch.OutOfMemoryError("CUDA out of memory.")
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: device-side assert triggered"),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(handle)`"),
        ValueError("expected batches of 8"),
    ],
    ids=str,
)
def test_other_errors_do_not_count(error: Exception) -> None:
    assert not is_out_of_memory(error)
