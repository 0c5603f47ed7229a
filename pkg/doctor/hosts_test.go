package doctor

import (
	"fmt"
	"io/fs"
	"maps"
	"testing"
	"testing/fstest"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/kernel/irq"
	"github.com/sluice-dev/sluice/pkg/kernel/newidle"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

// texts are files of a host, by path.
type texts map[string]string

// host returns a machine with these files.
func host(t testing.TB, machine string, files ...texts) fstest.MapFS {
	t.Helper()
	spec, err := synth.Parse(machine)
	if err != nil {
		t.Fatal(err)
	}
	tree, all := spec.FS(), fstest.MapFS{}
	err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(tree, name)
		all[name] = &fstest.MapFile{Data: data}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, more := range files {
		for name, text := range more {
			all[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
		}
	}
	return all
}

const hostNamespace = "cgroup:[4026531835]"

// namespaced gives a host the cgroup namespace of this process.
func namespaced(h fstest.MapFS, link string) fstest.MapFS {
	h["proc/self/ns/cgroup"] = &fstest.MapFile{Data: []byte(link), Mode: fs.ModeSymlink | 0o777}
	return h
}

func kernelOf(release, os string) texts {
	return texts{"proc/sys/kernel/osrelease": release + "\n", "etc/os-release": "NAME=x\nPRETTY_NAME=\"" + os + "\"\n", "proc/swaps": "Filename Type Size Used Priority\n"}
}

// v2 has all controllers in cgroup v2, with pods placed by the systemd driver.
func v2() texts {
	const controllers = "cpuset cpu io memory pids\n"
	return texts{
		"proc/self/mountinfo":                                 "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n30 23 0:27 / /tmp rw - tmpfs tmpfs rw\n",
		"sys/fs/cgroup/cgroup.controllers":                    controllers,
		"sys/fs/cgroup/cgroup.subtree_control":                controllers,
		"sys/fs/cgroup/kubepods.slice/cgroup.subtree_control": controllers,
		"sys/fs/cgroup/kubepods.slice/cpuset.cpus.partition":  "member\n",
		"sys/fs/cgroup/kubepods.slice/cpuset.cpus.exclusive":  "\n",
		"proc/pressure/memory":                                "some avg10=0.00\n",
		"proc/1/comm":                                         "systemd\n",
	}
}

// v1 has all controllers in cgroup v1, with pods placed by the cgroupfs driver.
func v1() texts {
	files := texts{"proc/self/mountinfo": "31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n"}
	for i, c := range []string{"cpuset", "cpu,cpuacct", "memory", "blkio", "net_cls"} {
		files["proc/self/mountinfo"] += fmt.Sprintf("%d 31 0:%d / /sys/fs/cgroup/%s rw shared:%d - cgroup cgroup rw,%s\n", 32+i, 32+i, c, i, c)
		files["sys/fs/cgroup/"+c+"/kubepods/tasks"] = ""
	}
	return files
}

func containerd() texts {
	return texts{
		"run/containerd/containerd.sock": "", "run/nri/nri.sock": "",
		"proc/400/status": "Name:\tcontainerd\nPPid:\t1\nCpus_allowed_list:\t0-15\n",
	}
}

func kubeletFiles(config string, args string) texts {
	files := texts{"proc/500/comm": "kubelet\n", "proc/500/status": "Name:\tkubelet\nPPid:\t1\nCpus_allowed_list:\t0-15\n", "proc/500/cmdline": "/usr/bin/kubelet\x00" + args + "\x00"}
	if config != "" {
		files["var/lib/kubelet/config.yaml"] = config
	}
	return files
}

// has returns the features of a kernel with these knobs' files.
func has(onV2 bool, files map[knobs.Knob]string) *knobs.Features {
	var f knobs.Features
	for k := range knobs.Knobs {
		f.Knobs[k] = knobs.Feature{State: knobs.Unsupported, V2: onV2, Why: "this kernel has no such file"}
		if file, ok := files[k]; ok {
			f.Knobs[k] = knobs.Feature{State: knobs.Supported, V2: onV2, File: file}
		}
	}
	return &f
}

func mainlineV2() *knobs.Features {
	f := has(true, map[knobs.Knob]string{
		knobs.CPUs: "cpuset.cpus", knobs.Mems: "cpuset.mems", knobs.Quota: "cpu.max", knobs.Burst: "cpu.max.burst",
		knobs.Weight: "cpu.weight", knobs.Idle: "cpu.idle", knobs.MemoryMax: "memory.max", knobs.MemoryMin: "memory.min",
		knobs.MemoryLow: "memory.low", knobs.MemoryHigh: "memory.high", knobs.OOMGroup: "memory.oom.group",
		knobs.SwapMax: "memory.swap.max", knobs.IOWeight: "io.weight", knobs.IOMax: "io.max",
	})
	f.Reclaim = true
	return f
}

func baseV1(more map[knobs.Knob]string) *knobs.Features {
	files := map[knobs.Knob]string{
		knobs.CPUs: "cpuset.cpus", knobs.Mems: "cpuset.mems", knobs.Quota: "cpu.cfs_quota_us", knobs.Weight: "cpu.shares",
		knobs.MemoryMax: "memory.limit_in_bytes", knobs.SoftLimit: "memory.soft_limit_in_bytes", knobs.Swappiness: "memory.swappiness",
		knobs.IOMax: "blkio.throttle.read_bps_device", knobs.NetClass: "net_cls.classid",
	}
	maps.Copy(files, more)
	return has(false, files)
}

func facts(h fs.FS, f *knobs.Features) *Facts {
	return &Facts{Host: h, Root: "/", Arch: "amd64", Version: "v0.2.0", Features: f, CoreSched: knobs.Supported, Newidle: newidle.Sometimes, Config: config.Default()}
}

// nodes returns kernels and distributions, and their problems.
func nodes(t *testing.T) map[string]*Facts {
	t.Helper()
	all := map[string]*Facts{}

	ubuntu := namespaced(host(t, "2 packages 4 cores 2 threads", kernelOf("6.8.0-45-generic", "Ubuntu 24.04 LTS"), v2(), containerd(),
		kubeletFiles("kind: KubeletConfiguration\ncgroupDriver: systemd\n", "--config=/var/lib/kubelet/config.yaml"), texts{
			"proc/cpuinfo":     "processor\t: 0\nflags\t\t: fpu rdt_a cat_l3 mba cqm_occup_llc\n",
			"proc/filesystems": "nodev\tresctrl\n",
		}), hostNamespace)
	all["ubuntu-24.04"] = facts(ubuntu, mainlineV2())
	all["ubuntu-24.04"].Status = &status.Status{
		Version: "v0.2.0", Mode: "on",
		Runtime: status.Runtime{Connected: true, Name: "containerd", Version: "v2.4.0", NRIVersion: "v0.12.5", RecordUpdates: status.RecordUpdatesOn},
		Machine: status.Machine{Online: cpuset.Range(0, 15)},
	}

	debian := namespaced(host(t, "2 cores", kernelOf("6.1.0-25-amd64", "Debian GNU/Linux 12 (bookworm)"), v1(), containerd(), texts{
		"proc/self/mountinfo":          v1()["proc/self/mountinfo"] + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
		"proc/pressure/memory":         "some avg10=0.00\n",
		"etc/containerd/config.toml":   "version = 3\nimports = ['conf.d/*.toml']\n[plugins.'io.containerd.nri.v1.nri']\ndisable = true\n",
		"etc/containerd/conf.d/a.toml": "[plugins.'io.containerd.nri.v1.nri']\ndisable = false\n",
	}), hostNamespace)
	all["debian-hybrid"] = facts(debian, baseV1(map[knobs.Knob]string{knobs.Burst: "cpu.cfs_burst_us", knobs.Idle: "cpu.idle"}))

	anolis := map[knobs.Knob]string{
		knobs.BVT: "cpu.bvt_warp_ns", knobs.Burst: "cpu.cfs_burst_us", knobs.MemoryMin: "memory.min", knobs.MemoryLow: "memory.low",
		knobs.MemoryHigh: "memory.high", knobs.WmarkRatio: "memory.wmark_ratio", knobs.WmarkScale: "memory.wmark_scale_factor",
		knobs.WmarkMinAdj: "memory.wmark_min_adj", knobs.MemPriority: "memory.priority", knobs.PriorityOOM: "memory.use_priority_oom",
		knobs.PageCache: "memory.pagecache_limit.size", knobs.IOWeight: "blkio.cost.weight",
	}
	all["anolis-8"] = facts(namespaced(host(t, "2 cores 2 threads", kernelOf("5.10.134-16.an8.x86_64", "Anolis OS 8.8"), v1(), containerd(),
		texts{
			"var/lib/kubelet/cpu_manager_state": `{"policyName":"static","defaultCpuSet":"0-1"}`,
			"etc/containerd/config.toml":        "version = 2\n[plugins.\"io.containerd.nri.v1.nri\"]\ndisable = true\n",
			"proc/swaps":                        "Filename Type Size Used Priority\n/dev/dm-1 partition 8388604 0 -2\n",
		}), hostNamespace), baseV1(anolis))
	delete(all["anolis-8"].Host.(fstest.MapFS), "run/nri/nri.sock")
	all["anolis-8"].Features.BurstOverQuota = true

	all["alios-crash"] = facts(namespaced(host(t, "2 cores 2 threads", kernelOf("4.19.91-25.3.al7.x86_64", "Alibaba Cloud Linux (Aliyun Linux) 2.1903"), v1(), containerd()), hostNamespace), baseV1(anolis))

	openEuler := facts(namespaced(host(t, "2 cores 2 threads", kernelOf("5.10.0-60.18.0.50.oe2203.x86_64", "openEuler 22.03 LTS"), v1(),
		kubeletFiles("featureGates: {MemoryQoS: true}\ncpuCFSQuota: false\nmemoryManagerPolicy: Static\n", "--topology-manager-policy=single-numa-node"),
		texts{
			"run/crio/crio.sock": "", "etc/crio/crio.conf.d/10-x.conf": "[crio.nri]\nenable_nri = false\n", "run/nri/nri.sock": "",
			"proc/700/comm": "koordlet\n", "proc/700/status": "Name:\tkoordlet\nPPid:\t1\nUid:\t0 0 0 0\nCapEff:\tffffffffff\nCpus_allowed_list:\t0-3\n",
			"opt/nri/plugins/10-device-injector": "", "opt/nri/plugins/50-sluice": "",
		}), hostNamespace), baseV1(map[knobs.Knob]string{knobs.CPUQoS: "cpu.qos_level", knobs.MemoryQoS: "memory.qos_level", knobs.MemoryHigh: "memory.high"}))
	openEuler.Features.Knobs[knobs.MemoryQoS] = knobs.Feature{State: knobs.Unsupported, File: "memory.qos_level", Cause: knobs.SwitchedOff, Why: "write 1 to /proc/sys/vm/memcg_qos_enable and restart Sluice"}
	openEuler.CoreSched, openEuler.CoreSchedWhy = knobs.Unsupported, "this kernel has no PR_SCHED_CORE"
	all["openeuler-22.03"] = openEuler

	all["tencentos-3"] = facts(namespaced(host(t, "2 cores", kernelOf("5.4.119-19.0009", "TencentOS Server 3.1"), v1(), containerd(), texts{
		"proc/filesystems": "nodev\tresctrl\n", "proc/self/mountinfo": v1()["proc/self/mountinfo"] + "60 23 0:50 / /sys/fs/resctrl rw - resctrl resctrl rw,mba_MBps\n",
		"sys/fs/resctrl/info/L3/num_closids": "16\n", "sys/fs/resctrl/info/MB/num_closids": "8\n", "sys/fs/resctrl/info/L3_MON/num_rmids": "224\n",
		"sys/fs/resctrl/info/last_cmd_status": "ok\n",
	}), hostNamespace), baseV1(map[knobs.Knob]string{knobs.CgroupPriority: "cgroup.priority", knobs.CPUOffline: "cpu.offline", knobs.PageCacheMax: "memory.pagecache.max_ratio"}))

	// This pod has namespaces of its own on arm64, a mount of only a part of /sys/fs/cgroup, and
	// no privileges.
	pod := facts(namespaced(host(t, "2 cores", kernelOf("6.6.0", "Alpine Linux v3.20"), texts{
		"proc/self/mountinfo":                  "29 23 0:26 /../../pod1 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n",
		"sys/fs/cgroup/cgroup.controllers":     "cpuset cpu memory\n",
		"sys/fs/cgroup/cgroup.subtree_control": "",
		"sys/fs/cgroup/cgroup.type":            "domain\n",
	}), "cgroup:[4026532444]"), nil)
	pod.Arch, pod.FeaturesErr = "arm64", fmt.Errorf("making the cgroup: %w", fs.ErrPermission)
	pod.Config, pod.ConfigFile, pod.ConfigErr = nil, "/etc/sluice/sluice.yaml", fmt.Errorf("line 1: mode\nline 2: pools")
	all["pod"] = pod

	nothing := facts(fstest.MapFS{}, nil)
	nothing.Arch, nothing.CoreSched, nothing.CoreSchedWhy = "riscv64", knobs.Inconclusive, "operation not permitted"
	nothing.StateErr = fmt.Errorf("/var/lib/sluice: %w", fs.ErrPermission)
	nothing.RuntimeErr = fmt.Errorf("/run/sluice: %w", fs.ErrPermission)
	all["nothing"] = nothing
	all["troubled"] = troubled(t)
	return all
}

// troubled returns a plugin with many problems.
func troubled(t *testing.T) *Facts {
	t.Helper()
	f := facts(namespaced(host(t, "8 cores isolated 6-7", kernelOf("6.12.0", "Fedora Linux 42"), v2(), containerd(), texts{
		"proc/2/status":   "Name:\tkthreadd\nPPid:\t0\nCpus_allowed_list:\t0-7\n",
		"proc/30/status":  "Name:\tksoftirqd/2\nPPid:\t2\nCpus_allowed_list:\t2\n",
		"proc/600/status": "Name:\tchronyd\nPPid:\t1\nCpus_allowed_list:\t2-3\n", "proc/600/cgroup": "0::/system.slice/chronyd.service\n",
		"proc/601/status": "Name:\tsshd\nPPid:\t1\nCpus_allowed_list:\t0-7\n", "proc/601/cgroup": "0::/system.slice/ssh.service\n",
		"proc/602/status": "Name:\tapp\nPPid:\t1\nCpus_allowed_list:\t2\n", "proc/602/cgroup": "0::/kubepods.slice/pod1/c1\n",
		"proc/603/status": "Name:\tpause\nPPid:\t1\nCpus_allowed_list:\t2-4\n", "proc/603/cgroup": "0::/other/pod2/c2\n",
		"proc/604/status":           "Name:\tsluice\nPPid:\t1\nCpus_allowed_list:\t0-1\n",
		"proc/604/cmdline":          "/usr/local/bin/sluice\x00run\x00",
		"opt/nri/plugins/50-sluice": "",
	}), hostNamespace), mainlineV2())
	f.Host.(fstest.MapFS)["run/nri"] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
	f.Host.(fstest.MapFS)["run/nri/nri.sock"].Mode = fs.ModeSocket | 0o777
	f.Features.Knobs[knobs.IOMax] = knobs.Feature{V2: true, File: "io.max", Why: "there is no disk in /sys/block to try it on"}
	f.Status = &status.Status{
		Version: "v0.1.0", Mode: "preview", Why: "koordlet is here",
		Runtime: status.Runtime{Connected: true, Name: "containerd", Version: "1.7.30", RecordUpdates: status.RecordUpdatesOff, RecordUpdatesWhy: "the runtime's NRI of unknown version can deadlock"},
		Machine: status.Machine{Online: cpuset.Range(0, 7), Pinned: cpuset.Of(2), External: cpuset.Of(4)},
		Containers: []status.Container{
			{Ref: "a/b/c", Drift: 3, Cgroup: "/other/pod2/c2"}, {Ref: "a/b/d"}, {Ref: "a/b/e", Drift: 7},
		},
		Neighbours: []peers.Neighbour{{Kind: peers.Koordlet}},
		Counters:   status.Counters{Drift: 10, WriteErrors: 1, Panics: 2, RecordUpdates: 9, RecordUpdateFailures: 3},
	}
	f.Affinities = map[irq.File]cpuset.Set{"1": cpuset.Range(0, 7), "9": cpuset.Of(0), irq.Default: cpuset.Range(0, 7)}
	return f
}
