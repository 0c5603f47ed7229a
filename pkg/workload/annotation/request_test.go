package annotation

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

const gib = 1 << 30

// rules returns the default rules with some pools.
func rules() Rules {
	r := DefaultRules()
	r.Pools = []string{"critical", "online", "batch"}
	return r
}

// pod returns a pod in namespace team with a container "app". Each of says is "KEY=VALUE" for an
// annotation, or "label KEY=VALUE".
func pod(qos workload.QoS, milli int64, says ...string) (*workload.Pod, *workload.Container) {
	p := &workload.Pod{
		Namespace: "team", Name: "web", RuntimeHandler: "runc",
		Labels:      map[string]string{"app": "web"},
		Annotations: map[string]string{"kubernetes.io/config.source": "api"},
	}
	c := &workload.Container{Name: "app", OOMScoreAdj: 900}
	switch qos {
	case workload.Guaranteed:
		p.CgroupParent = "/kubepods/pod1"
		c.OOMScoreAdj = -997
		c.Resources = workload.Resources{Quota: milli * 100, Period: 100000, MemoryLimit: 2 * gib}
	case workload.Burstable:
		p.CgroupParent = "/kubepods/burstable/pod1"
	case workload.BestEffort:
		p.CgroupParent = "/kubepods/besteffort/pod1"
	}
	c.Resources.Shares = uint64(min(max(2, milli*1024/1000), 262144))
	for _, say := range says {
		into := p.Annotations
		if label, ok := strings.CutPrefix(say, "label "); ok {
			into, say = p.Labels, label
		}
		key, value, _ := strings.Cut(say, "=")
		if key == "namespace" {
			p.Namespace = value
			continue
		}
		into[key] = value
	}
	return p, c
}

// show describes what differs from an empty request.
func show(r workload.Request) string {
	out := r.Class.String()
	add := func(set bool, format string, args ...any) {
		if set {
			out += " " + fmt.Sprintf(format, args...)
		}
	}
	add(r.Pool != "", "pool=%s", r.Pool)
	add(r.CPUs != 0, "cpus=%d", r.CPUs)
	add(!r.CPUSet.IsEmpty(), "cpuset=%s", r.CPUSet)
	add(r.NUMA != 0, "numa=%s", []string{"", "prefer", "single", "spread"}[r.NUMA])
	add(r.SMT != 0, "smt=%s", []string{"", "any", "full-core", "one-per-core"}[r.SMT])
	add(r.L3 != 0, "l3=spread")
	add(r.Near.PCI != "", "near=%s", r.Near.PCI)
	add(r.Near.OwnDevices, "near=device")
	add(r.Exclusive != 0, "exclusive=%s", []string{"", "core", "node"}[r.Exclusive])
	add(r.ExclusiveGroup != "", "group=%s", r.ExclusiveGroup)
	add(r.MemoryNodes.Policy != 0, "mems=%s", []string{"", "local", "any", r.MemoryNodes.Nodes.String()}[r.MemoryNodes.Policy])
	return out
}

const (
	qosClass  = "label koordinator.sh/qosClass="
	spec      = "scheduling.koordinator.sh/resource-spec="
	status    = "scheduling.koordinator.sh/resource-status="
	level     = "katalyst.kubewharf.io/qos_level="
	cpuEnh    = "katalyst.kubewharf.io/cpu_enhancement="
	memoryEnh = "katalyst.kubewharf.io/memory_enhancement="
)

// Each case is a container of a Guaranteed pod that requests 4 CPUs, unless milli says otherwise,
// on a node with two threads per core. An empty want stands for an error; text contains parts of
// the error, or of the only warning if there is a want.
func TestRequest(t *testing.T) {
	t.Parallel()
	authorizeAll := func(r *Rules) {
		r.Authorize = []Authorization{{Features: []Feature{SystemClass, RoundUpCPUs, ExclusiveNUMA}, Namespaces: []string{"te*"}}}
	}
	ignore := func(r *Rules) { r.OnInvalid = Ignore }
	roundUp := func(r *Rules) { authorizeAll(r); r.RoundUp = true }
	for name, c := range map[string]struct {
		milli int64
		says  []string
		rules func(*Rules)
		want  string
		text  []string
	}{
		"nothing said": {want: "LS"},

		// The scopes of annotations
		"for the container":      {says: []string{"class.sluice.dev=BE", "class.sluice.dev/pod=BE", "class.sluice.dev/container.app=LSR"}, want: "LSR cpus=4"},
		"for the pod":            {says: []string{"class.sluice.dev=BE", "class.sluice.dev/pod=LSR"}, want: "LSR cpus=4"},
		"for another container":  {says: []string{"class.sluice.dev/container.sidecar=LSR"}, want: "LS"},
		"bad, but for another":   {says: []string{"class.sluice.dev/container.sidecar=LSX"}, want: "LS"},
		"an odd scope":           {says: []string{"class.sluice.dev/app=LSR"}, text: []string{`annotation "class.sluice.dev/app"`, "pod or container.NAME"}},
		"a typo":                 {says: []string{"clas.sluice.dev/pod=LSR"}, text: []string{"container team/web/app", `"clas.sluice.dev/pod" = "LSR"`, "did you mean class?"}},
		"a typo, ignored":        {says: []string{"clas.sluice.dev=LSR"}, rules: ignore, want: "LS", text: []string{"did you mean class?"}},
		"the key turned round":   {says: []string{"sluice.dev/numa=single"}, text: []string{"did you mean numa?"}},
		"nothing like a key":     {says: []string{"foo-bar.sluice.dev=1"}, text: []string{"the keys are class, pool, cpus"}},
		"somebody else's domain": {says: []string{"class.notsluice.dev=LSR", "class.sluice.dev.example.com=LSR"}, want: "LS"},
		"a key of the config":    {says: []string{"weight.sluice.dev=200%"}, text: []string{"weight.sluice.dev", "not a key that a pod may say"}},
		"too long":               {says: []string{"cpuset.sluice.dev=" + strings.Repeat("0,", 3000), "class.sluice.dev=LSR"}, text: []string{"6000 bytes", "4096"}},
		"a space around":         {says: []string{"class.sluice.dev= LSR "}, want: "LSR cpus=4"},
		"an unknown class":       {says: []string{"class.sluice.dev=lsr"}, text: []string{"annotation class.sluice.dev", `"lsr"`, "LSE, LSR, LS, BE or SYSTEM"}},
		"an unknown class, cut":  {says: []string{"class.sluice.dev=" + strings.Repeat("x", 500)}, text: []string{`"` + strings.Repeat("x", 80) + `"…`}},
		"an ignored class":       {says: []string{"class.sluice.dev=lsr", qosClass + "BE"}, rules: ignore, want: "BE", text: []string{"(ignored)"}},
		"SYSTEM, not allowed":    {says: []string{"class.sluice.dev=SYSTEM"}, text: []string{"namespace team", `"system"`, "authorize"}},
		"SYSTEM in kube-system":  {says: []string{"namespace=kube-system", "class.sluice.dev=SYSTEM"}, want: "SYSTEM"},
		"SYSTEM in a like one":   {says: []string{"namespace=kube-system-2", "class.sluice.dev=SYSTEM"}, text: []string{"authorize"}},
		"SYSTEM by glob":         {says: []string{"class.sluice.dev=SYSTEM"}, rules: authorizeAll, want: "SYSTEM"},
		"SYSTEM, not its feature": {says: []string{"class.sluice.dev=SYSTEM"}, rules: func(r *Rules) {
			r.Authorize = []Authorization{{Features: []Feature{RoundUpCPUs}, Namespaces: []string{"*"}}}
		}, text: []string{"authorize"}},
		"SYSTEM by a label": {says: []string{"class.sluice.dev=SYSTEM"}, rules: func(r *Rules) {
			r.Authorize = []Authorization{{Features: []Feature{SystemClass}, Labels: map[string]string{"app": "w*"}}}
		}, want: "SYSTEM"},
		"SYSTEM, nowhere named": {says: []string{"class.sluice.dev=SYSTEM"}, rules: func(r *Rules) { r.Authorize = []Authorization{{Features: []Feature{SystemClass}}} }, text: []string{"authorize"}},

		// Every key of placement
		"all of a pin": {says: []string{"class.sluice.dev=LSR", "cpus.sluice.dev=2", "cpuset.sluice.dev=8,10", "numa.sluice.dev=single", "smt.sluice.dev=one-per-core",
			"l3.sluice.dev=spread", "near.sluice.dev=3B:00.0", "memory-nodes.sluice.dev=0-1", "exclusive.sluice.dev=core", "exclusive-group.sluice.dev=db"},
			want: "LSR cpus=2 cpuset=8,10 numa=single smt=one-per-core l3=spread near=0000:3b:00.0 exclusive=core group=team/db mems=0-1"},
		"near its device":        {says: []string{"class.sluice.dev=LSE", "near.sluice.dev=device", "numa.sluice.dev=spread", "memory-nodes.sluice.dev=any"}, want: "LSE cpus=4 numa=spread near=device mems=any"},
		"a VMD address":          {says: []string{"class.sluice.dev=LSE", "near.sluice.dev=10000:01:1f.7"}, want: "LSE cpus=4 near=10000:01:1f.7"},
		"no PCI address":         {says: []string{"class.sluice.dev=LSE", "near.sluice.dev=eth0"}, text: []string{"near.sluice.dev", `"eth0"`, "0000:3b:00.0"}},
		"no PCI device":          {says: []string{"class.sluice.dev=LSE", "near.sluice.dev=0000:3b:20.0"}, text: []string{"PCI address"}},
		"no NUMA policy":         {says: []string{"class.sluice.dev=LSE", "numa.sluice.dev=1"}, text: []string{"single, prefer or spread"}},
		"no list":                {says: []string{"class.sluice.dev=LSR", "cpuset.sluice.dev=0-"}, text: []string{"cpuset.sluice.dev", "a list like 0-3,8", "is not a number"}},
		"an empty list":          {says: []string{"class.sluice.dev=LSR", "cpuset.sluice.dev="}, text: []string{"the list is empty"}},
		"memory on no nodes":     {says: []string{"memory-nodes.sluice.dev=near"}, text: []string{"local, any or a list of NUMA nodes"}},
		"memory of LS":           {says: []string{"memory-nodes.sluice.dev=1"}, want: "LS mems=1"},
		"a group alone":          {says: []string{"class.sluice.dev=LSR", "exclusive-group.sluice.dev=db"}, want: "LSR cpus=4", text: []string{"no effect without exclusive.sluice.dev"}},
		"a node, not allowed":    {says: []string{"class.sluice.dev=LSR", "exclusive.sluice.dev=node"}, text: []string{`"exclusiveNode"`}},
		"a node, allowed":        {says: []string{"class.sluice.dev=LSR", "exclusive.sluice.dev=node"}, rules: authorizeAll, want: "LSR cpus=4 exclusive=node group=team/"},
		"a pool":                 {says: []string{"pool.sluice.dev=critical"}, want: "LS pool=critical"},
		"a pool of BE":           {says: []string{"class.sluice.dev=BE", "pool.sluice.dev=batch"}, want: "BE pool=batch"},
		"no pool":                {says: []string{"pool.sluice.dev=gold"}, text: []string{"no pool of this node", "critical, online, batch"}},
		"a pool of LSR":          {says: []string{"class.sluice.dev=LSR", "pool.sluice.dev=critical"}, want: "LSR cpus=4", text: []string{"pool.sluice.dev has no effect on class LSR"}},
		"numa of LS":             {says: []string{"numa.sluice.dev=single"}, want: "LS numa=single"},
		"numa of BE":             {says: []string{"class.sluice.dev=BE", "numa.sluice.dev=prefer"}, want: "BE numa=prefer"},
		"numa of SYSTEM":         {says: []string{"class.sluice.dev=SYSTEM", "numa.sluice.dev=prefer"}, rules: authorizeAll, want: "SYSTEM", text: []string{"numa.sluice.dev has no effect on class SYSTEM"}},
		"LS spread":              {says: []string{"numa.sluice.dev/container.app=spread"}, text: []string{"spread is for LSE and LSR; LS shares CPUs"}},
		"LS beside spread pins":  {says: []string{"class.sluice.dev=LSR", "class.sluice.dev/container.app=LS", "numa.sluice.dev=spread"}, want: "LS", text: []string{"spread is for LSE and LSR; LS shares CPUs"}},
		"too long a group":       {says: []string{"class.sluice.dev=LSR", "exclusive.sluice.dev=core", "exclusive-group.sluice.dev=" + strings.Repeat("g", 64)}, text: []string{"1 to 63 letters"}},
		"a pool of SYSTEM":       {says: []string{"namespace=kube-system", "class.sluice.dev=SYSTEM", "pool.sluice.dev=critical"}, want: "SYSTEM", text: []string{"no effect on class SYSTEM"}},
		"several things at once": {says: []string{"class.sluice.dev=LSR", "numa.sluice.dev=no", "l3.sluice.dev=no"}, text: []string{"numa.sluice.dev", "l3.sluice.dev"}},

		// The limits of the grant
		"fewer than requested":       {says: []string{"class.sluice.dev=LSR", "cpus.sluice.dev=3"}, want: "LSR cpus=3"},
		"more than requested":        {says: []string{"class.sluice.dev=LSR", "cpus.sluice.dev=5"}, text: []string{"cpus.sluice.dev", `"5"`, "request of 4000m, 4", "request more"}},
		"more, ignored":              {says: []string{"class.sluice.dev=LSR", "cpus.sluice.dev=5"}, rules: ignore, want: "LSR cpus=4", text: []string{"(ignored)"}},
		"no CPUs":                    {says: []string{"class.sluice.dev=LSR", "cpus.sluice.dev=0"}, text: []string{"a whole number of CPUs"}},
		"a fraction of CPUs":         {says: []string{"class.sluice.dev=LSR", "cpus.sluice.dev=1.5"}, text: []string{"a whole number of CPUs"}},
		"chosen CPUs":                {says: []string{"class.sluice.dev=LSR", "cpuset.sluice.dev=4-6"}, want: "LSR cpus=3 cpuset=4-6"},
		"too many chosen":            {says: []string{"class.sluice.dev=LSR", "cpuset.sluice.dev=4-8"}, text: []string{"cpuset.sluice.dev", "5 CPUs are more than"}},
		"chosen CPUs, other count":   {says: []string{"class.sluice.dev=LSR", "cpuset.sluice.dev=4-6", "cpus.sluice.dev=2"}, text: []string{"cpuset.sluice.dev", "3 CPUs, and 2"}},
		"a count of a fraction":      {milli: 2500, says: []string{"class.sluice.dev=LSR", "cpus.sluice.dev=2"}, want: "LSR cpus=2"},
		"above a fraction":           {milli: 2500, says: []string{"class.sluice.dev=LSR", "cpus.sluice.dev=3"}, text: []string{"2500m, 2"}},
		"a fraction":                 {milli: 2500, says: []string{"class.sluice.dev=LSR"}, text: []string{`class.sluice.dev = "LSR"`, "requests 2500m", "request 2 or 3", "class.sluice.dev/container.app: LS"}},
		"a fraction of a core":       {milli: 2500, says: []string{"class.sluice.dev=LSE"}, text: []string{"request 2 or 4"}},
		"a fraction, ignored":        {milli: 2500, says: []string{"class.sluice.dev=LSR", "numa.sluice.dev=single"}, rules: ignore, want: "LS", text: []string{"requests 2500m"}},
		"a tenth":                    {milli: 100, says: []string{"class.sluice.dev=LSE"}, text: []string{"requests 100m", "request 2,"}},
		"nothing requested":          {milli: -1, says: []string{"class.sluice.dev/container.app=LSR"}, text: []string{"requests none", "request 1,"}},
		"kubectl debug":              {milli: -1, says: []string{"class.sluice.dev=LSR"}, want: "LS", text: []string{"requests none (as those of kubectl debug do): it is LS"}},
		"half a core":                {milli: 3000, says: []string{"class.sluice.dev=LSE"}, text: []string{"2 threads", "3 CPUs", "ask for 2 or 4", "smt.sluice.dev: any"}},
		"half a core, ignored":       {milli: 3000, says: []string{"class.sluice.dev=LSE"}, rules: ignore, want: "LS", text: []string{"2 threads"}},
		"half a core, any":           {milli: 3000, says: []string{"class.sluice.dev=LSE", "smt.sluice.dev=any"}, want: "LSE cpus=3 smt=any"},
		"half a core, one per core":  {milli: 3000, says: []string{"class.sluice.dev=LSE", "smt.sluice.dev=one-per-core"}, want: "LSE cpus=3 smt=one-per-core"},
		"half a core by count":       {says: []string{"class.sluice.dev=LSE", "cpus.sluice.dev=1"}, text: []string{"ask for 2,"}},
		"half a core of LSR":         {milli: 3000, says: []string{"class.sluice.dev=LSR"}, want: "LSR cpus=3"},
		"half a full core of LSR":    {milli: 3000, says: []string{"class.sluice.dev=LSR", "smt.sluice.dev=full-core"}, text: []string{`smt.sluice.dev = "full-core"`, "ask for 2 or 4"}},
		"half a full core, ignored":  {milli: 3000, says: []string{"class.sluice.dev=LSR", "smt.sluice.dev=full-core"}, rules: ignore, want: "LSR cpus=3", text: []string{"(ignored)"}},
		"rounded up":                 {milli: 2500, says: []string{"class.sluice.dev=LSR"}, rules: roundUp, want: "LSR cpus=3"},
		"rounded up to cores":        {milli: 2500, says: []string{"class.sluice.dev=LSE"}, rules: roundUp, want: "LSE cpus=4"},
		"whole CPUs up to cores":     {milli: 3000, says: []string{"class.sluice.dev=LSR", "smt.sluice.dev=full-core"}, rules: roundUp, want: "LSR cpus=4 smt=full-core"},
		"a count rounded up":         {milli: 2500, says: []string{"class.sluice.dev=LSR", "cpus.sluice.dev=3"}, rules: roundUp, want: "LSR cpus=3"},
		"nothing is not rounded up":  {milli: -1, says: []string{"class.sluice.dev/container.app=LSR"}, rules: roundUp, text: []string{"requests none"}},
		"rounding up, not allowed":   {milli: 2500, says: []string{"class.sluice.dev=LSR"}, rules: func(r *Rules) { r.RoundUp = true }, text: []string{"2500m"}},
		"rounding up, not switched":  {milli: 2500, says: []string{"class.sluice.dev=LSR"}, rules: authorizeAll, text: []string{"2500m"}},
		"more than a machine's CPUs": {says: []string{"class.sluice.dev=LSR", "cpus.sluice.dev=5000"}, text: []string{"a whole number of CPUs"}},

		// Koordinator's labels and annotations
		"Koordinator's class":         {says: []string{qosClass + "LSR"}, want: "LSR cpus=4"},
		"Koordinator's SYSTEM":        {says: []string{qosClass + "SYSTEM"}, text: []string{"label koordinator.sh/qosClass", "authorize"}},
		"Koordinator's other class":   {says: []string{qosClass + "lsr"}, want: "LS", text: []string{"label koordinator.sh/qosClass", "(ignored)"}},
		"Koordinator's batch":         {says: []string{"label koordinator.sh/priority-class=koord-batch"}, want: "BE"},
		"Koordinator's prod":          {says: []string{"label koordinator.sh/priority-class=koord-prod"}, want: "LS"},
		"Koordinator's batch but LS":  {says: []string{qosClass + "LS", "label koordinator.sh/priority-class=koord-batch"}, want: "LS"},
		"Koordinator's CPUs":          {says: []string{qosClass + "LSR", status + `{"cpuset":"0-3","numaNodeResources":[{"node":0}]}`}, want: "LSR cpus=4 cpuset=0-3"},
		"Koordinator's pod's CPUs":    {says: []string{qosClass + "LSR", status + `{"cpuset":"0-7"}`}, want: "LSR cpus=4", text: []string{"8 CPUs are more"}},
		"Koordinator's nodes":         {says: []string{qosClass + "LSE", status + `{"numaNodeResources":[{"node":1,"resources":{"cpu":"4"}}]}`}, want: "LSE cpus=4 mems=1"},
		"Koordinator's nodes of LS":   {says: []string{status + `{"numaNodeResources":[{"node":1}]}`}, want: "LS", text: []string{"LSE and LSR only"}},
		"Koordinator's no node":       {says: []string{status + `{"numaNodeResources":[{"node":-1}]}`}, want: "LS", text: []string{`"-1"`, "not a NUMA node's number"}},
		"Koordinator's bad JSON":      {says: []string{status + `{"cpuset":`}, text: []string{"resource-status", "JSON object"}},
		"Koordinator's sidecar":       {milli: 500, says: []string{qosClass + "LSR"}, want: "LS", text: []string{"requests 500m", "(ignored)"}},
		"Koordinator's odd LSE":       {milli: 3000, says: []string{qosClass + "LSE"}, want: "LSE cpus=3 smt=any", text: []string{"part of a core"}},
		"prefers full cores":          {says: []string{qosClass + "LSR", spec + `{"preferredCPUBindPolicy":"FullPCPUs"}`}, want: "LSR cpus=4 smt=full-core"},
		"prefers them in vain":        {milli: 3000, says: []string{qosClass + "LSR", spec + `{"preferredCPUBindPolicy":"FullPCPUs"}`}, want: "LSR cpus=3", text: []string{"(ignored)"}},
		"requires them in vain":       {milli: 3000, says: []string{qosClass + "LSR", spec + `{"requiredCPUBindPolicy":"FullPCPUs"}`}, text: []string{"resource-spec", `"FullPCPUs"`, "ask for 2 or 4"}},
		"requires beats prefers":      {says: []string{qosClass + "LSR", spec + `{"requiredCPUBindPolicy":"SpreadByPCPUs","preferredCPUBindPolicy":"FullPCPUs"}`}, want: "LSR cpus=4 smt=one-per-core"},
		"spread by the scheduler":     {says: []string{qosClass + "LSR", spec + `{"preferredCPUBindPolicy":"SpreadByPCPUs"}`, status + `{"cpuset":"0-3"}`}, want: "LSR cpus=4 cpuset=0-3 smt=any"},
		"spread LSE":                  {says: []string{qosClass + "LSE", spec + `{"requiredCPUBindPolicy":"SpreadByPCPUs","preferredCPUExclusivePolicy":"PCPULevel"}`, status + `{"cpuset":"0-3"}`}, want: "LSE cpus=4 cpuset=0-3 smt=any exclusive=core group=koordinator.sh"},
		"spread, but not its CPUs":    {says: []string{qosClass + "LSR", spec + `{"preferredCPUBindPolicy":"SpreadByPCPUs"}`, status + `{"cpuset":"0-7"}`}, want: "LSR cpus=4 smt=one-per-core", text: []string{"8 CPUs are more"}},
		"own spread, their CPUs":      {says: []string{qosClass + "LSR", "smt.sluice.dev=one-per-core", status + `{"cpuset":"0-3"}`}, want: "LSR cpus=4 cpuset=0-3 smt=one-per-core"},
		"the default bind policy":     {says: []string{qosClass + "LSR", spec + `{"preferredCPUBindPolicy":"Default","preferredCPUExclusivePolicy":"None"}`}, want: "LSR cpus=4"},
		"a default requirement":       {says: []string{qosClass + "LSR", spec + `{"requiredCPUBindPolicy":"Default","preferredCPUBindPolicy":"FullPCPUs"}`}, want: "LSR cpus=4 smt=full-core"},
		"another bind policy":         {says: []string{qosClass + "LSR", spec + `{"preferredCPUBindPolicy":"ConstrainedBurst"}`}, want: "LSR cpus=4", text: []string{"ConstrainedBurst"}},
		"exclusive cores":             {says: []string{qosClass + "LSR", spec + `{"preferredCPUExclusivePolicy":"PCPULevel"}`}, want: "LSR cpus=4 exclusive=core group=koordinator.sh"},
		"exclusive nodes, preferred":  {says: []string{qosClass + "LSR", spec + `{"preferredCPUExclusivePolicy":"NUMANodeLevel"}`}, want: "LSR cpus=4", text: []string{"exclusiveNode", "(ignored)"}},
		"exclusive nodes, allowed":    {says: []string{qosClass + "LSR", spec + `{"preferredCPUExclusivePolicy":"NUMANodeLevel"}`}, rules: authorizeAll, want: "LSR cpus=4 exclusive=node group=koordinator.sh"},
		"another exclusive policy":    {says: []string{qosClass + "LSR", spec + `{"preferredCPUExclusivePolicy":"Rack"}`}, want: "LSR cpus=4", text: []string{"PCPULevel"}},
		"Koordinator is switched off": {says: []string{qosClass + "LSR"}, rules: func(r *Rules) { r.Dialects.Koordinator = false }, want: "LS"},

		// Katalyst's annotations
		"dedicated":                 {says: []string{level + "dedicated_cores"}, want: "LSE cpus=4"},
		"dedicated on one node":     {says: []string{level + "dedicated_cores", memoryEnh + `{"numa_binding":"true"}`}, want: "LSE cpus=4 numa=single"},
		"dedicated alone on it":     {says: []string{level + "dedicated_cores", memoryEnh + `{"numa_binding":true,"numa_exclusive":"true"}`}, rules: authorizeAll, want: "LSE cpus=4 numa=single exclusive=node group=katalyst"},
		"alone, not allowed":        {says: []string{level + "dedicated_cores", memoryEnh + `{"numa_binding":"true","numa_exclusive":"true"}`}, text: []string{"memory_enhancement", `"numa_exclusive"`, "exclusiveNode"}},
		"shared on one node":        {says: []string{level + "shared_cores", memoryEnh + `{"numa_binding":"true"}`}, want: "LS numa=single"},
		"reclaimed on one node":     {says: []string{level + "reclaimed_cores", memoryEnh + `{"numa_binding":"true","numa_exclusive":"false"}`}, want: "BE numa=single"},
		"alone, without binding":    {says: []string{level + "dedicated_cores", memoryEnh + `{"numa_exclusive":"true"}`}, want: "LSE cpus=4"},
		"not bound":                 {says: []string{level + "dedicated_cores", memoryEnh + `{"numa_binding":"false"}`}, want: "LSE cpus=4"},
		"shared":                    {says: []string{level + "shared_cores", cpuEnh + `{"cpuset_pool":"critical"}`}, want: "LS pool=critical"},
		"shared, a pool made by it": {says: []string{level + "shared_cores", cpuEnh + `{"cpuset_pool":"bmq"}`}, want: "LS", text: []string{"no pool of this node", "(ignored)"}},
		"reclaimed":                 {says: []string{level + "reclaimed_cores"}, want: "BE"},
		"system":                    {says: []string{"namespace=kube-system", level + "system_cores"}, want: "SYSTEM"},
		"system, not allowed":       {says: []string{level + "system_cores"}, text: []string{"qos_level", `"system_cores"`, "authorize"}},
		"another level":             {says: []string{level + "gold_cores"}, text: []string{"qos_level", `"gold_cores"`, "dedicated_cores, shared_cores"}},
		"not an object":             {says: []string{cpuEnh + "batch"}, text: []string{"cpu_enhancement", "JSON object"}},
		"Katalyst is switched off":  {says: []string{level + "gold_cores"}, rules: func(r *Rules) { r.Dialects.Katalyst = false }, want: "LS"},

		// Precedence of the sources
		"own before Koordinator":      {says: []string{"class.sluice.dev=LS", qosClass + "BE"}, want: "LS", text: []string{`label koordinator.sh/qosClass asks for class "BE", but annotation class.sluice.dev for "LS"`}},
		"Koordinator before Katalyst": {says: []string{qosClass + "BE", level + "shared_cores"}, want: "BE", text: []string{`qos_level asks for class "LS"`}},
		"all agree":                   {says: []string{"class.sluice.dev=BE", qosClass + "BE", level + "reclaimed_cores"}, want: "BE"},
		"own count, chosen CPUs":      {says: []string{qosClass + "LSR", status + `{"cpuset":"0-3"}`, "cpus.sluice.dev=2"}, want: "LSR cpus=2", text: []string{"4 CPUs, and 2"}},
		"classified":                  {rules: classify("class", "LSR", "smt", "any"), want: "LSR cpus=4 smt=any"},
		"own before classify":         {says: []string{"class.sluice.dev=LS"}, rules: classify("class", "LSR", "smt", "any"), want: "LS"},
		"Katalyst before classify":    {says: []string{level + "reclaimed_cores"}, rules: classify("class", "LSR"), want: "BE"},
		"classified, a fraction":      {milli: 1500, rules: classify("class", "LSR"), want: "LS", text: []string{"config classify rule 1", "1500m"}},
		"classified SYSTEM":           {rules: classify("class", "SYSTEM"), want: "SYSTEM"},
		"own CPUs, classified count":  {says: []string{"cpuset.sluice.dev=0-2"}, rules: classify("class", "LSR", "cpus", "2"), want: "LSR cpus=3 cpuset=0-2", text: []string{"classify rule 1"}},
		"the default class":           {rules: func(r *Rules) { r.Defaults.Guaranteed = workload.LSR }, want: "LSR cpus=4"},
		"the default, a fraction":     {milli: 1500, rules: func(r *Rules) { r.Defaults.Guaranteed = workload.LSR }, want: "LS", text: []string{"config defaults.guaranteed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := rules()
			if c.rules != nil {
				c.rules(&rules)
			}
			if c.milli == 0 {
				c.milli = 4000
			}
			p, app := pod(workload.Guaranteed, max(0, c.milli), c.says...)
			got, warnings, err := rules.Request(Facts{ThreadsPerCore: 2}, p, app)
			if c.want == "" {
				if err == nil {
					t.Fatalf("got %q, want an error", show(got))
				}
				var invalid *Invalid
				if !errors.As(err, &invalid) || got.Class != workload.Unclassified {
					t.Errorf("an error of type %T with request %q", err, show(got))
				}
				contains(t, err.Error(), c.text)
				return
			}
			if err != nil || show(got) != c.want {
				t.Errorf("got %q, %v, want %q", show(got), err, c.want)
			}
			if want := min(1, len(c.text)); len(warnings) != want {
				t.Errorf("warnings %q, want %d", warnings, want)
			} else if want == 1 {
				contains(t, warnings[0].Text, append(c.text, "container "+p.Namespace+"/web/app"))
			}
		})
	}
}

// given returns the Set that a configuration makes of valid keys and values.
func given(keysAndValues ...string) Set {
	set := Set{}
	for i := 0; i < len(keysAndValues); i += 2 {
		g, err := Give(keysAndValues[i], keysAndValues[i+1])
		if err != nil {
			panic(err)
		}
		set[keysAndValues[i]] = g
	}
	return set
}

func classify(keysAndValues ...string) func(*Rules) {
	set := given(keysAndValues...)
	return func(r *Rules) { r.Classify = []Classification{{Set: set}} }
}

func contains(t *testing.T, text string, parts []string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
}

// For a pod that isn't Guaranteed, the runtime reports no requests above 256 CPUs.
func TestRequestBeyondShares(t *testing.T) {
	t.Parallel()
	rules := rules()
	for _, c := range []struct {
		qos   workload.QoS
		milli int64
		says  string
		want  string
		text  string
	}{
		{workload.Burstable, 255000, "l3.sluice.dev=pack", "LSR cpus=255", ""},
		{workload.Burstable, 256000, "numa.sluice.dev=prefer", "", "at most 256"},
		{workload.Burstable, 300000, "numa.sluice.dev=prefer", "", "make the pod Guaranteed"},
		{workload.Burstable, 300000, "cpus.sluice.dev=256", "LSR cpus=256", ""},
		{workload.Burstable, 300000, "cpus.sluice.dev=300", "", "make the pod Guaranteed"},
		{workload.Guaranteed, 300000, "cpus.sluice.dev=300", "LSR cpus=300", ""},
	} {
		p, app := pod(c.qos, c.milli, "class.sluice.dev=LSR", c.says)
		got, _, err := rules.Request(Facts{ThreadsPerCore: 2}, p, app)
		if c.want == "" {
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v %dm %s: %v, want %q", c.qos, c.milli, c.says, err, c.text)
			}
		} else if err != nil || show(got) != c.want {
			t.Errorf("%v %dm %s: %q, %v, want %q", c.qos, c.milli, c.says, show(got), err, c.want)
		}
	}
}

func TestSettingsSayWhereFrom(t *testing.T) {
	t.Parallel()
	rules := rules()
	rules.Classify = []Classification{{Set: given("l3", "spread")}}
	rules.Classes = Classes{}
	p, c := pod(workload.Guaranteed, 4000, "class.sluice.dev/pod=LSR", "numa.sluice.dev/container.app=single", spec+`{"preferredCPUBindPolicy":"FullPCPUs"}`, "memory-nodes.sluice.dev=any")
	got, _, err := rules.Request(Facts{ThreadsPerCore: 2}, p, c)
	if err != nil {
		t.Fatal(err)
	}
	want := map[workload.RequestKey]bool{
		{Key: "class", Value: "LSR", Source: "annotation class.sluice.dev/pod"}:                        true,
		{Key: "cpus", Value: "4", Source: "the CPU request"}:                                           true,
		{Key: "numa", Value: "single", Source: "annotation numa.sluice.dev/container.app"}:             true,
		{Key: "smt", Value: "full-core", Source: "annotation scheduling.koordinator.sh/resource-spec"}: true,
		{Key: "l3", Value: "spread", Source: "config classify rule 1"}:                                 true,
		{Key: "memory-nodes", Value: "any", Source: "annotation memory-nodes.sluice.dev"}:              true,
	}
	have := map[workload.RequestKey]bool{}
	for _, s := range got.Keys {
		have[s] = true
	}
	if !maps.Equal(have, want) || len(got.Keys) != len(want) {
		t.Errorf("settings %v, want %v", got.Keys, want)
	}
}

// Many unknown keys result in one message of bounded length that is always the same.
func TestUnknownKeysAreBounded(t *testing.T) {
	t.Parallel()
	rules := rules()
	p, c := pod(workload.Burstable, 100)
	for i := range 1000 {
		p.Annotations[fmt.Sprintf("x%04d.sluice.dev", i)] = strings.Repeat("y", 1000)
	}
	_, _, first := rules.Request(Facts{}, p, c)
	_, _, second := rules.Request(Facts{}, p, c)
	if first == nil || first.Error() != second.Error() || len(first.Error()) > 5000 {
		t.Errorf("%v\n\nand\n\n%v", first, second)
	}
	contains(t, first.Error(), []string{"x0000", "x0004", "995 more"})
}

// An invalid count is one mistake, and not also a class without a count.
func TestOneMistakeOneError(t *testing.T) {
	t.Parallel()
	rules := rules()
	p, c := pod(workload.Guaranteed, 2500, "class.sluice.dev=LSR", "cpus.sluice.dev=9")
	_, _, err := rules.Request(Facts{ThreadsPerCore: 2}, p, c)
	if err == nil || strings.Count(err.Error(), "\n") != 0 || !strings.Contains(err.Error(), "cpus.sluice.dev") {
		t.Errorf("%v, want one error about cpus", err)
	}
}
