//go:build !rdma

package verbs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// layouts says which field of the header each field is; fields of ours that are
// not named are padding or never touched.
var layouts = []struct {
	c      string
	goType reflect.Type
	whole  bool // the sizes are equal too
	fields string
}{
	{"struct ibv_device_attr", reflect.TypeFor[deviceAttr](), true, "fwVer=fw_ver nodeGUID=node_guid sysImageGUID=sys_image_guid maxMRSize=max_mr_size pageSizeCap=page_size_cap vendorID=vendor_id vendorPartID=vendor_part_id hwVer=hw_ver maxQP=max_qp maxQPWR=max_qp_wr deviceCapFlags=device_cap_flags maxSGE=max_sge maxSGERd=max_sge_rd maxCQ=max_cq maxCQE=max_cqe maxMR=max_mr maxPD=max_pd maxQPRdAtom=max_qp_rd_atom maxEERdAtom=max_ee_rd_atom maxResRdAtom=max_res_rd_atom maxQPInitRd=max_qp_init_rd_atom maxEEInitRd=max_ee_init_rd_atom atomicCap=atomic_cap maxPkeys=max_pkeys ackDelay=local_ca_ack_delay physPortCnt=phys_port_cnt"},
	{"struct ibv_port_attr", reflect.TypeFor[portAttr](), true, "state=state maxMTU=max_mtu activeMTU=active_mtu gidTblLen=gid_tbl_len portCapFlags=port_cap_flags maxMsgSz=max_msg_sz badPkeyCntr=bad_pkey_cntr qkeyViol=qkey_viol_cntr pkeyTblLen=pkey_tbl_len lid=lid smLid=sm_lid lmc=lmc maxVLNum=max_vl_num smSL=sm_sl subnetTimeout=subnet_timeout initType=init_type_reply activeWidth=active_width activeSpeed=active_speed physState=phys_state linkLayer=link_layer flags=flags portCapFlags2=port_cap_flags2"},
	{"struct ibv_gid_entry", reflect.TypeFor[gidEntry](), true, "gid=gid gidIndex=gid_index portNum=port_num gidType=gid_type ndevIfindex=ndev_ifindex"},
	{"struct ibv_global_route", reflect.TypeFor[globalRoute](), true, "dgid=dgid flowLabel=flow_label sgidIndex=sgid_index hopLimit=hop_limit trafficClass=traffic_class"},
	{"struct ibv_ah_attr", reflect.TypeFor[ahAttr](), true, "grh=grh dlid=dlid sl=sl srcPathBits=src_path_bits staticRate=static_rate isGlobal=is_global portNum=port_num"},
	{"struct ibv_qp_cap", reflect.TypeFor[qpCap](), true, "maxSendWR=max_send_wr maxRecvWR=max_recv_wr maxSendSGE=max_send_sge maxRecvSGE=max_recv_sge maxInlineData=max_inline_data"},
	{"struct ibv_qp_init_attr", reflect.TypeFor[qpInitAttr](), true, "qpContext=qp_context sendCQ=send_cq recvCQ=recv_cq srq=srq cap=cap qpType=qp_type sqSigAll=sq_sig_all"},
	{"struct ibv_qp_attr", reflect.TypeFor[qpAttr](), true, "qpState=qp_state curQPState=cur_qp_state pathMTU=path_mtu pathMigState=path_mig_state qkey=qkey rqPSN=rq_psn sqPSN=sq_psn destQPNum=dest_qp_num qpAccessFlags=qp_access_flags cap=cap ahAttr=ah_attr altAHAttr=alt_ah_attr pkeyIndex=pkey_index altPkeyIndex=alt_pkey_index enSqdAsyncNotify=en_sqd_async_notify sqDraining=sq_draining maxRdAtomic=max_rd_atomic maxDestRdAtomic=max_dest_rd_atomic minRNRTimer=min_rnr_timer portNum=port_num timeout=timeout retryCnt=retry_cnt rnrRetry=rnr_retry altPortNum=alt_port_num altTimeout=alt_timeout rateLimit=rate_limit"},
	{"struct ibv_mr", reflect.TypeFor[mrHead](), true, "context=context pd=pd addr=addr length=length handle=handle lkey=lkey rkey=rkey"},
	{"struct ibv_qp", reflect.TypeFor[qpHead](), false, "context=context qpContext=qp_context pd=pd sendCQ=send_cq recvCQ=recv_cq srq=srq handle=handle qpNum=qp_num"},
	{"struct ibv_context", reflect.TypeFor[contextHead](), false, "device=device ops=ops cmdFD=cmd_fd asyncFD=async_fd"},
	{"struct ibv_comp_channel", reflect.TypeFor[compChannelHead](), false, "context=context fd=fd"},
	{"struct ibv_async_event", reflect.TypeFor[asyncEvent](), true, "element=element eventType=event_type"},
	{"struct ibv_sge", reflect.TypeFor[sge](), true, "addr=addr length=length lkey=lkey"},
	{"struct ibv_recv_wr", reflect.TypeFor[recvWR](), true, "id=wr_id next=next sgList=sg_list numSGE=num_sge"},
	{"struct ibv_send_wr", reflect.TypeFor[SendWR](), true, "ID=wr_id next=next sgList=sg_list numSGE=num_sge Opcode=opcode Flags=send_flags imm=imm_data RemoteAddr=wr.rdma.remote_addr RemoteAddr=wr.atomic.remote_addr arg=wr.rdma.rkey arg=wr.atomic.compare_add"},
	{"struct ibv_wc", reflect.TypeFor[WC](), true, "ID=wr_id Status=status Opcode=opcode VendorErr=vendor_err ByteLen=byte_len imm=imm_data QPNum=qp_num srcQP=src_qp wcFlags=wc_flags pkeyIndex=pkey_index slid=slid sl=sl dlidPathBits=dlid_path_bits"},
}

// values are our numbers for the header's names.
var values = []struct {
	c string
	v int
}{
	{"offsetof(struct ibv_context, ops.poll_cq)", 8 + 8*opPollCQ},
	{"offsetof(struct ibv_context, ops.req_notify_cq)", 8 + 8*opReqNotifyCQ},
	{"offsetof(struct ibv_context, ops.post_send)", 8 + 8*opPostSend},
	{"offsetof(struct ibv_context, ops.post_recv)", 8 + 8*opPostRecv},
	{"offsetof(struct ibv_send_wr, wr.atomic.swap)", 56},
	{"offsetof(struct ibv_send_wr, wr.atomic.rkey)", 64},
	{"sizeof(((struct ibv_context *)0)->ops)", 8 * 32},
	{"IBV_QPT_RC", qptRC},
	{"IBV_WR_RDMA_WRITE", int(WRRDMAWrite)}, {"IBV_WR_RDMA_READ", int(WRRDMARead)}, {"IBV_WR_SEND", int(WRSend)},
	{"IBV_WR_ATOMIC_CMP_AND_SWP", int(WRCompareSwap)}, {"IBV_WR_ATOMIC_FETCH_AND_ADD", int(WRFetchAdd)},
	{"IBV_SEND_FENCE", int(SendFence)}, {"IBV_SEND_SIGNALED", int(SendSignaled)}, {"IBV_SEND_INLINE", int(SendInline)},
	{"IBV_WC_SUCCESS", int(WCSuccess)}, {"IBV_WC_WR_FLUSH_ERR", int(WCFlushErr)}, {"IBV_WC_REM_ACCESS_ERR", int(WCRemAccessErr)},
	{"IBV_WC_RETRY_EXC_ERR", int(WCRetryExcErr)}, {"IBV_WC_RECV", int(WCRecv)},
	{"IBV_ACCESS_LOCAL_WRITE", int(AccessLocalWrite)}, {"IBV_ACCESS_REMOTE_WRITE", int(AccessRemoteWrite)},
	{"IBV_ACCESS_REMOTE_READ", int(AccessRemoteRead)}, {"IBV_ACCESS_REMOTE_ATOMIC", int(AccessRemoteAtomic)},
	{"IBV_ACCESS_RELAXED_ORDERING", int(AccessRelaxedOrdering)},
	{"IBV_QPS_INIT", int(QPSInit)}, {"IBV_QPS_RTR", int(QPSRTR)}, {"IBV_QPS_RTS", int(QPSRTS)}, {"IBV_QPS_ERR", int(QPSErr)},
	{"IBV_QP_STATE", qpState}, {"IBV_QP_ACCESS_FLAGS", qpAccessFlags}, {"IBV_QP_PKEY_INDEX", qpPkeyIndex}, {"IBV_QP_PORT", qpPort},
	{"IBV_QP_AV", qpAV}, {"IBV_QP_PATH_MTU", qpPathMTU}, {"IBV_QP_TIMEOUT", qpTimeout}, {"IBV_QP_RETRY_CNT", qpRetryCnt},
	{"IBV_QP_RNR_RETRY", qpRNRRetry}, {"IBV_QP_RQ_PSN", qpRQPSN}, {"IBV_QP_MAX_QP_RD_ATOMIC", qpMaxRdAtomic},
	{"IBV_QP_MIN_RNR_TIMER", qpMinRNRTimer}, {"IBV_QP_SQ_PSN", qpSQPSN}, {"IBV_QP_MAX_DEST_RD_ATOMIC", qpMaxDestRdAtomic},
	{"IBV_QP_DEST_QPN", qpDestQPN},
	{"IBV_PORT_ACTIVE", int(PortActive)}, {"IBV_LINK_LAYER_INFINIBAND", int(LinkInfiniBand)}, {"IBV_LINK_LAYER_ETHERNET", int(LinkEthernet)},
	{"IBV_GID_TYPE_IB", int(GIDIB)}, {"IBV_GID_TYPE_ROCE_V1", int(GIDRoCEv1)}, {"IBV_GID_TYPE_ROCE_V2", int(GIDRoCEv2)},
	{"IBV_ATOMIC_NONE", int(AtomicNone)}, {"IBV_ATOMIC_HCA", int(AtomicHCA)}, {"IBV_ATOMIC_GLOB", int(AtomicGlobal)},
	{"IBV_EVENT_CQ_ERR", int(EventCQErr)}, {"IBV_EVENT_QP_FATAL", int(EventQPFatal)}, {"IBV_EVENT_QP_REQ_ERR", int(EventQPReqErr)},
	{"IBV_EVENT_QP_ACCESS_ERR", int(EventQPAccessErr)}, {"IBV_EVENT_DEVICE_FATAL", int(EventDeviceFatal)},
	{"IBV_EVENT_PORT_ACTIVE", int(EventPortActive)}, {"IBV_EVENT_PORT_ERR", int(EventPortErr)}, {"IBV_EVENT_GID_CHANGE", int(EventGIDChange)},
}

// The compiler with the real header says whether every offset, size and number
// is right.
func TestLayoutIsTheHeaders(t *testing.T) {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc")
	}
	dir := t.TempDir()
	src := filepath.Join(dir, "layout.c")
	include := "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n"
	if err := os.WriteFile(src, []byte(include), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-fsyntax-only", src).CombinedOutput(); err != nil {
		if bytes.Contains(out, []byte("infiniband/verbs.h")) {
			t.Skip("no infiniband/verbs.h (libibverbs-dev)")
		}
		t.Fatalf("%v\n%s", err, out)
	}
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("another ABI")
	}
	var program, want strings.Builder
	fmt.Fprintf(&program, "%sint main(void) {\n", include)
	line := func(name, c string, v uintptr) {
		fmt.Fprintf(&program, "printf(\"%s %%zu\\n\", (size_t)(%s));\n", name, c)
		fmt.Fprintf(&want, "%s %d\n", name, v)
	}
	for _, l := range layouts {
		if l.whole {
			line(l.c, "sizeof("+l.c+")", l.goType.Size())
		}
		for _, pair := range strings.Fields(l.fields) {
			ours, theirs, _ := strings.Cut(pair, "=")
			f, ok := l.goType.FieldByName(ours)
			if !ok {
				t.Fatalf("%v has no field %s", l.goType, ours)
			}
			line(l.c+"."+theirs, fmt.Sprintf("offsetof(%s, %s)", l.c, theirs), f.Offset)
		}
	}
	for _, v := range values {
		line(v.c, v.c, uintptr(v.v))
	}
	program.WriteString("return 0; }\n")
	if err := os.WriteFile(src, []byte(program.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "layout")
	if out, err := exec.Command(cc, "-o", bin, src).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := exec.Command(bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	is, should := strings.Split(string(got), "\n"), strings.Split(want.String(), "\n")
	for i := range should {
		if is[i] != should[i] {
			t.Errorf("header: %s, ours: %s", is[i], should[i])
		}
	}
}
