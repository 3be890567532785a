"""Kinds of collectives, by the names that libraries and frameworks give them."""

import pytest

from traceadvisor.analysis.communication.collectives import bus_factor, kind_named
from traceadvisor.model.communication import CollectiveKind
from traceadvisor.model.events import Kind
from traceadvisor.parsing.columns.categories import kind_of

AR, AG, RS = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER
A2A, P2P = CollectiveKind.ALL_TO_ALL, CollectiveKind.SEND_RECEIVE


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("allreduce", AR),
        ("allreduce_coalesced", AR),
        ("_allgather_base", AG),
        ("all_gather_into_tensor_coalesced", AG),
        ("_reduce_scatter_base", RS),
        ("reduce_scatter_tensor_coalesced", RS),
        ("all_to_allv", A2A),
        ("alltoall_base_", A2A),
        ("_broadcast_oop", CollectiveKind.BROADCAST),
        ("_reduce_oop", CollectiveKind.REDUCE),
        ("barrier", CollectiveKind.BARRIER),
        ("send", P2P),
        ("nccl:recv 1<-0", P2P),
        ("gather", CollectiveKind.OTHER),
        ("wait", CollectiveKind.OTHER),
        ("nccl:coalesced", CollectiveKind.OTHER),
        ("", CollectiveKind.OTHER),
        ("nccl:all_reduce", AR),
        ("c10d::_allgather_base_", AG),
    ],
)
def test_a_recorded_name_tells_the_kind(name: str, kind: CollectiveKind) -> None:
    assert kind_named(name) is kind


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", AR),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", AR),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", RS),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)", AG),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", P2P),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", CollectiveKind.BROADCAST),
        ("ncclDevKernel_Reduce_Sum_f64_RING_LL(ncclDevComm*, unsigned long, ncclWork*)", CollectiveKind.REDUCE),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", CollectiveKind.OTHER),
        ("mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*)", CollectiveKind.OTHER),
        ("void mscclpp::collective::allreduce7<int4>(unsigned int*)", AR),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)", AR),
        ("void sglang::cross_device_reduce_2stage<half, 4>(sglang::RankData*)", AR),
        ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1, 8>(Params)", AR),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(void*, unsigned long)", AR),
        ("void (anonymous namespace)::two_shot_all_reduce_kernel<float, 16, 8, 1>(float**)", AR),
        ("void (anonymous namespace)::multimem_all_gather_kernel<16>(char*, char*)", AG),
        ("quickreduce::allreduce_prototype_twoshot<half>", AR),
        ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)", A2A),
        ("void dpsk::ep::internode::dispatch<false, 8, true, 8>(int4*, float*)", A2A),
        ("void dpsk::ep::internode::combine<true, 4, __nv_bfloat16>(int4*, float*)", A2A),
        ("void dpsk::ep::internode_ll::dispatch_ll<3, 10, 7168>(void*, float*)", A2A),
        ("void dpsk::ep::internode::notify_dispatch<false, 4>(int const*, int*)", A2A),
        ("void deep_ep::intranode::cached_notify_combine<8>(void**, int*)", A2A),
        ("void dpsk::ep::internode::cached_notify<false>(int, int*)", A2A),
        ("nvshmemi_alltoall_kernel", A2A),
        ("hybrid_ep::device_sync_kernel(unsigned int*, unsigned int*)", A2A),
        ("void hybrid_ep::dispatch_kernel<unsigned short, 8, 4>(hybrid_ep::dispatch_kernel_param_t)", A2A),
        ("void hybrid_ep::combine_kernel<8, 4>(hybrid_ep::combine_kernel_param_t)", A2A),
        ("void mori::moe::EpDispatchIntraNodeKernel<hip_bfloat16>(EpDispatchCombineArgs<hip_bfloat16>)", A2A),
        ("EpCombineInterNodeV1Kernel_bf16", A2A),
        ("void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<8, false>(int const*, int)", A2A),
        ("void tensorrt_llm::kernels::moe_comm::moeA2APrepareCombineKernel<__nv_bfloat16>(void*)", A2A),
        ("void rose::a2a_dispatch_send_kernel<256>(unsigned long)", A2A),
    ],
)
def test_a_communication_kernel_is_recognised_by_its_name(kernel: str, kind: CollectiveKind) -> None:
    assert kind_of("kernel", kernel) is Kind.COLLECTIVE
    assert kind_named(kernel) is kind


@pytest.mark.parametrize(
    "kernel",
    [
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(at::native::ReduceOp<float>)",
        "void at::native::_scatter_gather_elementwise_kernel<128, 8>(int)",
        "void SoftmaxWarpImpl<float, WarpAllReduce<MaxOp, float> >(float*)",
        "void LayerNormBlockSMemImpl<blockAllReduce, 4>(float*)",
        "gemm_allreduce_kernel_sm90",
        "void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*, int*)",
        "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*, int*)",
        "void cdpsk::ep::CUB_200::DeviceScanKernel<int>(int*)",
        "void hybrid_ep::scan<512, 132, 8>(short const*, hybrid_ep::tmp_state_t*)",
        "void hybrid_ep::permute_kernel<unsigned short>(unsigned short*, int*)",
        "void DepDispatcher::StepDispatchLoop<float>(float*)",
        "triton_poi_fused__to_copy_all_gather_into_tensor_wait_tensor_3",
        "_matmul_reduce_scatter_kernel",
        "void at::native::indexing_backward_kernel_broadcast<float>(long)",
        "Memcpy PtoP (Device -> Device)",
    ],
)
def test_a_kernel_that_computes_is_no_collective(kernel: str) -> None:
    assert kind_of("kernel", kernel) is Kind.KERNEL


@pytest.mark.parametrize(
    ("kind", "ranks", "factor"),
    [
        (AR, 2, 1.0),
        (AR, 8, 1.75),
        (AR, 1, 0.0),
        (AG, 8, 0.875),
        (RS, 4, 0.75),
        (A2A, 2, 0.5),
        (AR, None, None),
        (CollectiveKind.BROADCAST, None, 1.0),
        (P2P, None, 1.0),
        (CollectiveKind.BARRIER, 8, None),
        (CollectiveKind.OTHER, 8, None),
    ],
)
def test_factors_are_those_of_nccl_tests(kind: CollectiveKind, ranks: int | None, factor: float | None) -> None:
    assert bus_factor(kind, ranks) == factor
