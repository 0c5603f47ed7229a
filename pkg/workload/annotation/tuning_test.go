package annotation

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// spell describes what a request contains besides the placement.
func spell(t *workload.Tuning) string {
	var out []string
	add := func(set bool, format string, args ...any) {
		if set {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	burst := t.Burst
	add(burst.Percent > 0, "burst=%d%%", burst.Percent)
	add(burst.Auto, "raise=%d%%/%v", burst.QuotaPercent, burst.QuotaPeriod)
	add(t.Identity.Set, "identity=%d", t.Identity.Value)
	add(t.Weight != 0, "weight=%d%%", t.Weight)
	add(t.CoreSched != "", "core=%s", t.CoreSched)
	if m := spellMemory(&t.Memory); m != "{}" {
		add(true, "memory=%s", m)
	}
	add(t.RDT.Class != "", "rdt=%s", t.RDT.Class)
	add(t.RDT.Own != workload.RDTShare{}, "share=%d-%d/%d", t.RDT.Own.CacheFrom, t.RDT.Own.CacheTo, t.RDT.Own.Bandwidth)
	add(!reflect.DeepEqual(t.IO, workload.IO{}), "io=%s", spellIO(&t.IO))
	b := t.Batch
	add(b.CPURequest.Set, "shares=%d", b.CPURequest.Value)
	add(b.CPULimit.Set, "quota=%d", b.CPULimit.Value)
	add(b.MemoryLimit.Set, "limit=%d", b.MemoryLimit.Value)
	add(t.OOMScore.Set, "oom=%d", t.OOMScore.Value)
	add(t.NetClass.Set, "net=%#x", t.NetClass.Value)
	add(len(t.Required) > 0, "required=%s", strings.Join(t.Required, "+"))
	add(t.Allow.Set, "allow=%04b", t.Allow.Value)
	add(t.Evict.Never, "evict=never")
	add(t.Evict.Order.Set, "evict=%d", t.Evict.Order.Value)
	add(t.Tier.Set, "tier=%s", t.Tier.Value)
	add(t.SLO != workload.SLO{}, "slo=%v", t.SLO)
	add(t.Egress != workload.Egress{}, "egress=%s", spellEgress(t.Egress))
	return strings.Join(out, " ")
}

// spellEgress formats a ceiling as an annotation, and one in both forms with a "+".
func spellEgress(e workload.Egress) string {
	bits, percent := strconv.FormatInt(e.Bits, 10), strconv.Itoa(e.Percent)+"%"
	switch {
	case e.Percent == 0:
		return bits
	case e.Bits == 0:
		return percent
	}
	return bits + "+" + percent
}

// spellIO formats I/O settings as an annotation.
func spellIO(io *workload.IO) string {
	one := func(weight workload.Optional[int], l workload.IOLimits) []string {
		var out []string
		if weight.Set {
			out = append(out, fmt.Sprintf("weight: %d", weight.Value))
		}
		for _, f := range []struct {
			name string
			n    int64
		}{{"readBPS", l.ReadBPS}, {"writeBPS", l.WriteBPS}, {"readIOPS", l.ReadIOPS}, {"writeIOPS", l.WriteIOPS}} {
			if f.n > 0 {
				out = append(out, fmt.Sprintf("%s: %d", f.name, f.n))
			}
		}
		return out
	}
	out := one(io.Weight, io.Limits)
	if io.Priority != workload.IOUnset {
		out = append(out, "priority: "+map[workload.IOPriority]string{workload.IONormal: "normal", workload.IOIdle: "idle"}[io.Priority])
	}
	var devices []string
	for _, d := range io.Devices {
		devices = append(devices, fmt.Sprintf("%q: {%s}", d.Device, strings.Join(one(d.Weight, d.Limits), ", ")))
	}
	if devices != nil {
		out = append(out, "devices: {"+strings.Join(devices, ", ")+"}")
	}
	return "{" + strings.Join(out, ", ") + "}"
}

const (
	beMemory  = "memory={wmarkRatio: 95, wmarkScale: 20, wmarkMinAdj: 50}"
	lsrMemory = "memory={minPercent: 100, wmarkMinAdj: -25}"
)

// Each case is an LS container of a Guaranteed pod that requests 4 CPUs, unless it says otherwise.
// The want "refused" stands for an error; text contains parts of the error, or of the only warning
// if there is a want.
func TestTuning(t *testing.T) {
	t.Parallel()
	authorizeAll := func(r *Rules) {
		r.Authorize = []Authorization{{Features: []Feature{SystemClass, OtherPool, HighIdentity, OtherRDT, IOWeight, OOMScore, HighTier}, Namespaces: []string{"*"}}}
	}
	ignore := func(r *Rules) { r.OnInvalid = Ignore }
	rdt := func(r *Rules) { r.RDTClasses = []string{"be", "ls"} }
	rdtLS := func(r *Rules) { rdt(r); r.Classes.LS = given("rdt-class", "ls"); r.RDTPerPod = true }
	perPod := func(r *Rules) { r.RDTPerPod = true }
	pool := func(r *Rules) {
		r.DefaultPool = "online"
		r.PoolSets = map[string]Set{"critical": given("cpu-identity", "2", "weight", "200%", "oom-score", "-500"), "batch": given("weight", "10%"), "online": given("net-class", "10:1")}
	}
	poolAllowed := func(r *Rules) { pool(r); authorizeAll(r) }
	idle := func(r *Rules) { r.Classes.LS = given("io", "{priority: idle}") }
	slow := func(r *Rules) { r.Classes.LS = given("io", "{weight: 10, writeBPS: 2Mi}") }
	const (
		own       = ".sluice.dev="
		burst     = koordBurst + "="
		memory    = koordMemory + "="
		io        = koordIO + "="
		resctrl   = koordResctrl + "="
		reclaimed = level + "reclaimed_cores"
	)
	for name, c := range map[string]struct {
		says  []string
		rules func(*Rules)
		qos   workload.QoS // Guaranteed if not set
		want  string
		text  []string
	}{
		"nothing": {},

		// Burst
		"burst":               {says: []string{"cpu-burst" + own + "100%"}, want: "burst=100%"},
		"a large burst":       {says: []string{"cpu-burst" + own + "10000%"}, want: "burst=10000%"},
		"burst, automatic":    {says: []string{"cpu-burst" + own + "auto"}, want: "burst=100% raise=0%/0s"},
		"burst off":           {says: []string{"cpu-burst" + own + "off", burst + `{"policy":"auto"}`}, text: []string{"the latter counts"}},
		"a burst of nothing":  {says: []string{"cpu-burst" + own + "0%"}, want: "refused", text: []string{"off, auto or a percentage"}},
		"too large a burst":   {says: []string{"cpu-burst" + own + "10001%"}, want: "refused", text: []string{"1% to 10000%"}},
		"no percent":          {says: []string{"cpu-burst" + own + "100"}, want: "refused", text: []string{"cpu-burst.sluice.dev", `"100"`}},
		"burst of LSR":        {says: []string{"class" + own + "LSR", "cpu-burst" + own + "100%"}, want: "identity=2 " + lsrMemory, text: []string{"no effect on class LSR"}},
		"burst of BE":         {says: []string{"class" + own + "BE", "cpu-burst" + own + "100%"}, want: "identity=-1 " + beMemory, text: []string{"no effect on class BE"}},
		"Koordinator's burst": {says: []string{burst + `{"policy":"cpuBurstOnly"}`}, want: "burst=1000%"},
		"its burst, a share":  {says: []string{burst + `{"policy":"cpuBurstOnly","cpuBurstPercent":200}`}, want: "burst=200%"},
		"its raise":           {says: []string{burst + `{"policy":"cfsQuotaBurstOnly","cfsQuotaBurstPeriodSeconds":60}`}, want: "raise=300%/1m0s"},
		"both of its":         {says: []string{burst + `{"policy":"auto","cfsQuotaBurstPercent":150}`}, want: "burst=1000% raise=150%/0s"},
		"its none":            {says: []string{burst + `{"policy":"none"}`}, rules: func(r *Rules) { r.Classes.LS = given("cpu-burst", "100%") }},
		"its empty policy":    {says: []string{burst + `{}`}, rules: func(r *Rules) { r.Classes.LS = given("cpu-burst", "100%") }, want: "burst=100%"},
		"its other policy":    {says: []string{burst + `{"policy":"much"}`}, text: []string{`"much"`, "cpuBurstOnly", "(ignored)"}},
		"its bad burst":       {says: []string{burst + `{"policy":"auto","cpuBurstPercent":10001}`}, want: "refused", text: []string{"cpuBurstPercent must be 0 to 10000"}},
		"its bad raise":       {says: []string{burst + `{"policy":"auto","cfsQuotaBurstPercent":99}`}, want: "refused", text: []string{"cfsQuotaBurstPercent"}},
		"its bad time":        {says: []string{burst + `{"policy":"auto","cfsQuotaBurstPeriodSeconds":-2}`}, want: "refused", text: []string{"cfsQuotaBurstPeriodSeconds"}},
		"its bad JSON":        {says: []string{burst + `{"policy":7}`}, want: "refused", text: []string{"JSON object"}},
		"Katalyst's static":   {says: []string{cpuEnh + `{"cpu_burst_policy":"static","cpu_burst_percent":"50"}`}, want: "burst=50%"},
		"its static number":   {says: []string{cpuEnh + `{"cpu_burst_policy":"static","cpu_burst_percent":50.5}`}, want: "burst=50%"},
		"its static default":  {says: []string{cpuEnh + `{"cpu_burst_policy":"static"}`}, want: "burst=100%"},
		"its static nothing":  {says: []string{cpuEnh + `{"cpu_burst_policy":"static","cpu_burst_percent":"0"}`}},
		"its dynamic":         {says: []string{cpuEnh + `{"cpu_burst_policy":"dynamic"}`}, want: "burst=100% raise=0%/0s"},
		"its closed":          {says: []string{cpuEnh + `{"cpu_burst_policy":"closed"}`}, rules: func(r *Rules) { r.Classes.LS = given("cpu-burst", "100%") }},
		"its default":         {says: []string{cpuEnh + `{"cpu_burst_policy":"default"}`}, rules: func(r *Rules) { r.Classes.LS = given("cpu-burst", "100%") }, want: "burst=100%"},
		"its other burst":     {says: []string{cpuEnh + `{"cpu_burst_policy":"wild"}`}, text: []string{`"wild"`, "static or dynamic"}},
		"its bad percentage":  {says: []string{cpuEnh + `{"cpu_burst_policy":"static","cpu_burst_percent":"much"}`}, want: "refused", text: []string{"cpu_burst_percent", `"much"`}},
		"its reclaimed burst": {says: []string{reclaimed, cpuEnh + `{"cpu_burst_policy":"static"}`}, want: "identity=-1 " + beMemory, text: []string{"no effect on class BE"}},

		// Identity
		"identity below":           {says: []string{"cpu-identity" + own + "-1"}, want: "identity=-1"},
		"identity of the class":    {says: []string{"cpu-identity" + own + "0"}, want: "identity=0"},
		"identity above":           {says: []string{"cpu-identity" + own + "1"}, want: "refused", text: []string{"above the 0", "namespace team", `"identity"`}},
		"identity above, allowed":  {says: []string{"cpu-identity" + own + "2"}, rules: authorizeAll, want: "identity=2"},
		"identity above, ignored":  {says: []string{"cpu-identity" + own + "2"}, rules: ignore, text: []string{"(ignored)"}},
		"identity that LS has":     {says: []string{"cpu-identity" + own + "1"}, rules: func(r *Rules) { r.Classes.LS = given("cpu-identity", "2") }, want: "identity=1"},
		"identity of BE":           {says: []string{"class" + own + "BE", "cpu-identity" + own + "0"}, want: "refused", text: []string{"above the -1"}},
		"identity of LSR":          {says: []string{"class" + own + "LSR", "cpu-identity" + own + "2"}, rules: func(r *Rules) { r.Classes = Classes{} }, want: "identity=2"},
		"identity beyond":          {says: []string{"cpu-identity" + own + "3"}, want: "refused", text: []string{"a whole number, -1 to 2"}},
		"Koordinator's identity":   {says: []string{koordCPU + `={"groupIdentity":-1}`}, want: "identity=-1"},
		"its high identity":        {says: []string{koordCPU + `={"groupIdentity":2}`}, text: []string{"above the 0", "(ignored)"}},
		"its high, allowed":        {says: []string{koordCPU + `={"groupIdentity":2}`}, rules: authorizeAll, want: "identity=2"},
		"its bad identity":         {says: []string{koordCPU + `={"groupIdentity":3}`}, want: "refused", text: []string{"groupIdentity must be -1 to 2"}},
		"its identity left out":    {says: []string{koordCPU + `={"enable":true}`}},
		"Koordinator off":          {says: []string{koordCPU + `={"groupIdentity":-1}`}, rules: func(r *Rules) { r.Dialects.Koordinator = false }},
		"own before its identity":  {says: []string{"cpu-identity" + own + "0", koordCPU + `={"groupIdentity":-1}`}, want: "identity=0", text: []string{"the latter counts"}},
		"its own domain's neighbo": {says: []string{"xkoordinator.sh/cpuQOS={"}},

		// Core scheduling
		"a group":               {says: []string{"core-sched" + own + "pay"}, want: "core=team/pay"},
		"a group of its class":  {rules: func(r *Rules) { r.Classes.LS = given("core-sched", "ls") }, want: "core=ls"},
		"own before its class'": {says: []string{"core-sched" + own + "ls"}, rules: func(r *Rules) { r.Classes.LS = given("core-sched", "ls") }, want: "core=team/ls"},
		"no group":              {says: []string{"core-sched" + own + "a/b"}, want: "refused", text: []string{"1 to 63 letters"}},
		"Koordinator's group":   {says: []string{"label " + koordCores + "=0b5c"}, want: "core=team/0b5c"},
		"its older none":        {says: []string{"label " + koordCores + "=0"}, rules: func(r *Rules) { r.Classes.LS = given("core-sched", "ls") }},
		"its none of groups":    {says: []string{"label " + koordCores + "=x", "label " + koordCorePlan + "=none"}, rules: func(r *Rules) { r.Classes.LS = given("core-sched", "ls") }},
		"its exclusive":         {says: []string{"label " + koordCorePlan + "=exclusive"}, want: "core=team/uid-1"},
		"its other policy for":  {says: []string{"label " + koordCores + "=x", "label " + koordCorePlan + "=odd"}, want: "core=team/x", text: []string{`"odd"`}},

		// Memory
		"all of memory": {says: []string{"memory-qos" + own + "{minPercent: 50, lowPercent: 100, highPercent: 80, wmarkRatio: 95, wmarkScale: 1000, wmarkMinAdj: -25, priority: 0, oomGroup: true, offload: true, swap: never}"},
			want: "memory={minPercent: 50, lowPercent: 100, highPercent: 80, wmarkRatio: 95, wmarkScale: 1000, wmarkMinAdj: -25, priority: 0, oomGroup: true, offload: true, swap: never}"},
		"memory in JSON":           {says: []string{"memory-qos" + own + `{"lowPercent": 80}`}, want: "memory={lowPercent: 80}"},
		"memory in lines":          {says: []string{"memory-qos" + own + "lowPercent: 80\nwmarkRatio: 90 # late\n"}, want: "memory={lowPercent: 80, wmarkRatio: 90}"},
		"more than the request":    {says: []string{"memory-qos" + own + "{minPercent: 101}"}, want: "refused", text: []string{"minPercent: must be a whole number, 0 to 100"}},
		"low beyond the request":   {says: []string{"memory-qos" + own + "{lowPercent: 200}"}, want: "refused", text: []string{"lowPercent"}},
		"a watermark's typo":       {says: []string{"memory-qos" + own + "{wmarkRation: 95}"}, want: "refused", text: []string{`"wmarkRation"`, "did you mean wmarkRatio?"}},
		"nothing like a part":      {says: []string{"memory-qos" + own + "{q: 95}"}, want: "refused", text: []string{"but minPercent, lowPercent"}},
		"a part twice":             {says: []string{"memory-qos" + own + "{wmarkRatio: 95, wmarkRatio: 90}"}, want: "refused", text: []string{"there twice"}},
		"no mapping":               {says: []string{"memory-qos" + own + "95"}, want: "refused", text: []string{"one mapping", "{minPercent: …}"}},
		"no value":                 {says: []string{"memory-qos" + own}, want: "refused", text: []string{"one mapping"}},
		"two mappings":             {says: []string{"memory-qos" + own + "{}\n---\n{}"}, want: "refused", text: []string{"one mapping"}},
		"no YAML":                  {says: []string{"memory-qos" + own + "{"}, want: "refused", text: []string{"YAML or JSON"}},
		"a list for a number":      {says: []string{"memory-qos" + own + "{wmarkRatio: [95]}"}, want: "refused", text: []string{"wmarkRatio: must be a whole number"}},
		"an alias":                 {says: []string{"memory-qos" + own + "{wmarkRatio: &a 95, minPercent: *a}"}, want: "refused", text: []string{"minPercent: must be"}},
		"no boolean":               {says: []string{"memory-qos" + own + "{oomGroup: 1}"}, want: "refused", text: []string{"oomGroup: must be true or false"}},
		"no word for swap":         {says: []string{"memory-qos" + own + "{swap: true}"}, want: "refused", text: []string{"swap: must be never, allowed or unlimited"}},
		"swap unlike its class'":   {says: []string{"memory-qos" + own + "{swap: allowed}"}, rules: func(r *Rules) { r.Classes.LS = given("memory-qos", "{swap: never, lowPercent: 10}") }, want: "memory={lowPercent: 10, swap: allowed}"},
		"BE kept out of swap":      {says: []string{"class" + own + "BE", "memory-qos" + own + "{swap: never}"}, want: "refused", text: []string{"swap: never", `"oomScore"`}},
		"BE out of swap by class":  {says: []string{"class" + own + "BE", "memory-qos" + own + "{swap: never}"}, rules: func(r *Rules) { r.Classes.BE = given("memory-qos", "{swap: never}") }, want: "memory={swap: never}"},
		"a part of LSR's":          {says: []string{"class" + own + "LSR", "memory-qos" + own + "{oomGroup: true}"}, want: "identity=2 memory={minPercent: 100, wmarkMinAdj: -25, oomGroup: true}"},
		"none of LSR's":            {says: []string{"class" + own + "LSR", "memory-qos" + own + "{minPercent: 0, wmarkMinAdj: 0}"}, want: "identity=2 memory={minPercent: 0, wmarkMinAdj: 0}"},
		"killed last":              {says: []string{"memory-qos" + own + "{priority: 1}"}, want: "refused", text: []string{"priority 1 is above the 0", `"oomScore"`}},
		"killed last, allowed":     {says: []string{"memory-qos" + own + "{priority: 12}"}, rules: authorizeAll, want: "memory={priority: 12}"},
		"killed as the class is":   {says: []string{"memory-qos" + own + "{priority: 5}"}, rules: func(r *Rules) { r.Classes.LS = given("memory-qos", "{priority: 6}") }, want: "memory={priority: 5}"},
		"BE spared by the kernel":  {says: []string{"class" + own + "BE", "memory-qos" + own + "{wmarkMinAdj: -1}"}, want: "refused", text: []string{"wmarkMinAdj below 0"}},
		"Koordinator's memory":     {says: []string{memory + `{"lowLimitPercent":100,"throttlingPercent":80,"wmarkScalePermill":20,"priority":3,"oomKillGroup":1}`}, want: "memory={lowPercent: 100, highPercent: 80, wmarkScale: 20, oomGroup: true}"},
		"its rank":                 {says: []string{memory + `{"priorityEnable":1,"priority":3}`}, rules: authorizeAll, want: "memory={priority: 3}"},
		"its rank, not allowed":    {says: []string{memory + `{"priorityEnable":1,"priority":3}`}, text: []string{"(ignored)"}},
		"its recommendation":       {says: []string{memory + `{"policy":"auto","wmarkRatio":80}`}, want: "memory={minPercent: 0, lowPercent: 0, highPercent: 0, wmarkRatio: 80, wmarkScale: 20, wmarkMinAdj: -25}"},
		"its recommendation of BE": {says: []string{qosClass + "BE", memory + `{"policy":"auto"}`}, want: "identity=-1 memory={minPercent: 0, lowPercent: 0, highPercent: 0, wmarkRatio: 95, wmarkScale: 20, wmarkMinAdj: 50}"},
		"its memory off":           {says: []string{qosClass + "BE", memory + `{"policy":"none"}`}, want: "identity=-1 memory={minPercent: 0, lowPercent: 0, highPercent: 0, wmarkRatio: 0, wmarkScale: 20, wmarkMinAdj: 0, oomGroup: false}"},
		"its memory, nothing":      {says: []string{memory + `{"policy":"default"}`}},
		"its other memory policy":  {says: []string{memory + `{"policy":"all"}`}, text: []string{`"all"`}},
		"its bad memory":           {says: []string{memory + `{"wmarkRatio":101}`}, want: "refused", text: []string{"wmarkRatio must be 0 to 100"}},
		"Katalyst's rank":          {says: []string{memoryEnh + `{"oom_priority":"300"}`}, rules: authorizeAll, want: "memory={priority: 12}"},
		"its reclaimed rank":       {says: []string{reclaimed, memoryEnh + `{"oom_priority":-100}`}, want: "identity=-1 memory={wmarkRatio: 95, wmarkScale: 20, wmarkMinAdj: 50, priority: 0}"},
		"its no rank":              {says: []string{memoryEnh + `{"oom_priority":"-300"}`}},
		"its rank beyond":          {says: []string{memoryEnh + `{"oom_priority":"301"}`}, want: "refused", text: []string{"oom_priority", `"301"`}},
		"its dear rank":            {says: []string{memoryEnh + `{"oom_priority":"200"}`}, text: []string{"priority 9", "(ignored)"}},

		// RDT
		"an RDT class":           {says: []string{"rdt-class" + own + "be"}, rules: rdt, want: "rdt=be"},
		"no RDT class":           {says: []string{"rdt-class" + own + "bee"}, rules: rdt, want: "refused", text: []string{"which has be, ls"}},
		"no RDT at all":          {says: []string{"rdt-class" + own + "be"}, want: "refused", text: []string{"has none", "rdt.classes"}},
		"the class's RDT":        {rules: rdtLS, want: "rdt=ls"},
		"the same RDT":           {says: []string{"rdt-class" + own + "ls"}, rules: rdtLS, want: "rdt=ls"},
		"another RDT":            {says: []string{"rdt-class" + own + "be"}, rules: rdtLS, want: "refused", text: []string{"not RDT class ls", `"rdt"`}},
		"another RDT, allowed":   {says: []string{"rdt-class" + own + "be"}, rules: func(r *Rules) { rdtLS(r); authorizeAll(r) }, want: "rdt=be"},
		"a share":                {says: []string{resctrl + `{"llc":{"schemata":{"range":[20,80]}},"mb":{"schemata":{"percent":20}}}`}, rules: perPod, want: "share=20-80/20"},
		"a share of MB":          {says: []string{resctrl + `{"mb":{"schemata":{"percent":20}}}`}, rules: perPod, want: "share=0-0/20"},
		"no share":               {says: []string{resctrl + `{}`}, rules: perPod},
		"a share, off":           {says: []string{resctrl + `{"mb":{"schemata":{"percent":20}}}`}, text: []string{"rdt.perPod is false"}},
		"a share for a class":    {says: []string{resctrl + `{"mb":{"schemata":{"percent":20}}}`}, rules: rdtLS, want: "rdt=ls", text: []string{"not RDT class ls", "(ignored)"}},
		"a share by cache":       {says: []string{resctrl + `{"llc":{"schemataPerCache":[{"cacheID":0,"range":[0,30]}]},"mb":{"schemata":{"percent":20}}}`}, rules: perPod, want: "share=0-0/20", text: []string{"schemataPerCache"}},
		"a share turned round":   {says: []string{resctrl + `{"llc":{"schemata":{"range":[80,20]}}}`}, rules: perPod, want: "refused", text: []string{"llc range"}},
		"a share beyond":         {says: []string{resctrl + `{"mb":{"schemata":{"percent":101}}}`}, rules: perPod, want: "refused", text: []string{"mb percent must be 1 to 100"}},
		"a class beats a share":  {says: []string{"rdt-class" + own + "be", resctrl + `{"mb":{"schemata":{"percent":20}}}`}, rules: func(r *Rules) { rdt(r); perPod(r) }, want: "rdt=be", text: []string{"the latter counts"}},
		"RDT is a name":          {says: []string{"rdt-class" + own + "../x"}, want: "refused", text: []string{"1 to 63 letters"}},
		"a class of the classes": {says: []string{"class" + own + "BE", "rdt-class" + own + "be"}, rules: rdt, want: "identity=-1 " + beMemory + " rdt=be"},

		// I/O
		"all of I/O": {says: []string{"io" + own + `{weight: 50, readBPS: 10Mi, writeBPS: 1G, readIOPS: 1k, writeIOPS: 200, devices: {/dev/sda: {writeBPS: 1Mi}, "8:0": {weight: 10}}}`},
			want: `io={weight: 50, readBPS: 10485760, writeBPS: 1000000000, readIOPS: 1000, writeIOPS: 200, devices: {"/dev/sda": {writeBPS: 1048576}, "8:0": {weight: 10}}}`},
		"I/O above":                {says: []string{"io" + own + "{weight: 101}"}, want: "refused", text: []string{"weight 101 is above the 100", `"ioWeight"`}},
		"idle I/O":                 {says: []string{"io" + own + "{priority: idle}"}, want: "io={priority: idle}"},
		"normal I/O":               {says: []string{"io" + own + "{priority: normal}"}, want: "io={priority: normal}"},
		"the class's idle I/O":     {rules: idle, want: "io={priority: idle}"},
		"I/O above idle":           {says: []string{"io" + own + "{priority: normal}"}, rules: idle, want: "refused", text: []string{"not of the priority idle", `"ioWeight"`}},
		"I/O above it, allowed":    {says: []string{"io" + own + "{priority: normal}"}, rules: func(r *Rules) { idle(r); authorizeAll(r) }, want: "io={priority: normal}"},
		"I/O idle as the class's":  {says: []string{"io" + own + "{priority: idle, weight: 10}"}, rules: idle, want: "io={weight: 10, priority: idle}"},
		"I/O without its priority": {says: []string{"io" + own + "{weight: 10}"}, rules: idle, want: "refused", text: []string{"not of the priority idle", `"ioWeight"`}},
		"real-time I/O":            {says: []string{"io" + own + "{priority: rt}"}, rules: authorizeAll, want: "refused", text: []string{"priority: must be normal or idle"}},
		"I/O above on a disk":      {says: []string{"io" + own + `{devices: {"8:0": {weight: 500}}}`}, want: "refused", text: []string{"weight 500"}},
		"I/O above, allowed":       {says: []string{"io" + own + "{weight: 10000}"}, rules: authorizeAll, want: "io={weight: 10000}"},
		"I/O that the pool has":    {says: []string{"io" + own + "{weight: 300}"}, rules: func(r *Rules) { r.Classes.LS = given("io", "{weight: 300}") }, want: "io={weight: 300}"},
		"I/O above the class's":    {says: []string{"io" + own + "{weight: 50, writeBPS: 1Mi}"}, rules: slow, want: "refused", text: []string{"weight 50 is above the 10", `"ioWeight"`}},
		"I/O without its weight":   {says: []string{"io" + own + "{writeBPS: 1Mi}"}, rules: slow, want: "refused", text: []string{"weight 100 is above the 10"}},
		"I/O without its limit":    {says: []string{"io" + own + "{weight: 10}"}, rules: slow, want: "refused", text: []string{"leaves out or raises limits", `"ioWeight"`}},
		"I/O above its limit":      {says: []string{"io" + own + "{weight: 10, writeBPS: 3Mi}"}, rules: slow, want: "refused", text: []string{"leaves out or raises limits"}},
		"a disk above its limit":   {says: []string{"io" + own + `{weight: 10, writeBPS: 1Mi, devices: {"8:0": {weight: 1}}}`}, rules: slow, want: "refused", text: []string{"for each device"}},
		"I/O below the class's":    {says: []string{"io" + own + `{weight: 5, writeBPS: 1Mi, devices: {"8:0": {writeBPS: 2Mi}}}`}, rules: slow, want: `io={weight: 5, writeBPS: 1048576, devices: {"8:0": {writeBPS: 2097152}}}`},
		"I/O without limits, may":  {says: []string{"io" + own + "{weight: 100}"}, rules: func(r *Rules) { slow(r); authorizeAll(r) }, want: "io={weight: 100}"},
		"Koordinator's I/O, above": {says: []string{io + `{"blocks":[{"name":"/dev/sda","ioCfg":{"readBPS":1024}}]}`}, rules: slow, want: "io={weight: 10, writeBPS: 2097152}", text: []string{"weight 100 is above the 10"}},
		"too heavy I/O":            {says: []string{"io" + own + "{weight: 10001}"}, want: "refused", text: []string{"weight: must be a whole number, 1 to 10000"}},
		"I/O of nothing":           {says: []string{"io" + own + "{readBPS: 0}"}, want: "refused", text: []string{"readBPS: must be 1 to"}},
		"no amount":                {says: []string{"io" + own + "{readBPS: 10MB}"}, want: "refused", text: []string{"readBPS: must be a number with one of the suffixes"}},
		"too many operations":      {says: []string{"io" + own + "{readIOPS: 5G}"}, want: "refused", text: []string{"must be 1 to 4294967295"}},
		"an I/O typo":              {says: []string{"io" + own + "{readBps: 1}"}, want: "refused", text: []string{"did you mean readBPS?"}},
		"a device's typo":          {says: []string{"io" + own + `{devices: {"8:0": {wieght: 1}}}`}, want: "refused", text: []string{"8:0:", "did you mean weight?"}},
		"no device":                {says: []string{"io" + own + "{devices: {sda: {weight: 1}}}"}, want: "refused", text: []string{`"sda" is no block device`, "/dev/sda"}},
		"a way out of /dev":        {says: []string{"io" + own + "{devices: {/dev/../etc/x: {weight: 1}}}"}, want: "refused", text: []string{"no block device"}},
		"a device twice":           {says: []string{"io" + own + `{devices: {"8:0": {}, "8:0": {}}}`}, want: "refused", text: []string{"there twice"}},
		"odd numbers":              {says: []string{"io" + own + `{devices: {"08:0": {}}}`}, want: "refused", text: []string{"no block device"}},
		"devices in a list":        {says: []string{"io" + own + "{devices: [/dev/sda]}"}, want: "refused", text: []string{"devices: must be a mapping"}},
		"Koordinator's I/O":        {says: []string{io + `{"blocks":[{"name":"/dev/sda","type":"device","ioCfg":{"readBPS":1024,"writeIOPS":0,"ioWeightPercent":40}}]}`}, want: `io={devices: {"/dev/sda": {weight: 40, readBPS: 1024}}}`},
		"its volumes":              {says: []string{io + `{"blocks":[{"name":"vg0","type":"volumegroup"}]}`}, text: []string{"volumegroup", "only devices"}},
		"its bad device":           {says: []string{io + `{"blocks":[{"name":"sda"}]}`}, want: "refused", text: []string{"no block device"}},
		"its bad weight":           {says: []string{io + `{"blocks":[{"name":"/dev/sda","ioCfg":{"ioWeightPercent":101}}]}`}, want: "refused", text: []string{"ioWeightPercent must be 1 to 100"}},

		// OOM score
		"a score above":          {says: []string{koordOOM + "=100"}, want: "oom=100"},
		"a score below":          {says: []string{koordOOM + "=-998"}, text: []string{"below the kubelet's -997", `"oomScore"`, "(ignored)"}},
		"a score below, allowed": {says: []string{koordOOM + "=-998"}, rules: authorizeAll, want: "oom=-998"},
		"a score beyond":         {says: []string{koordOOM + "=1001"}, want: "refused", text: []string{"-1000 to 1000"}},
		"a score by container":   {says: []string{koordOOM + "=100", koordOOMs + `={"app":200,"other":300}`}, want: "oom=200"},
		"a score of the others":  {says: []string{koordOOM + "=100", koordOOMs + `={"other":300}`}, want: "oom=100"},
		"a score's own key":      {says: []string{"oom-score" + own + "-1000"}, want: "refused", text: []string{"not a key that a pod may say"}},

		// Settings of the control loop
		"the former priority":      {says: []string{"priority" + own + "-5"}, want: "refused", text: []string{"is not a key any more", "Write the number as evict instead"}},
		"Koordinator's priority":   {says: []string{"label " + koordPriority + "=koord-mid"}},
		"its batch":                {says: []string{"label " + koordPriority + "=koord-batch"}, want: "identity=-1 " + beMemory + " tier=batch"},
		"a tier":                   {says: []string{"class" + own + "BE", "tier" + own + "free"}, want: "identity=-1 " + beMemory + " tier=free"},
		"a tier's typo":            {says: []string{"class" + own + "BE", "tier" + own + "gold"}, want: "refused", text: []string{`tier.sluice.dev = "gold"`, "must be mid, batch or free"}},
		"a tier of LS":             {says: []string{"tier" + own + "mid"}, text: []string{"has no effect on class LS"}},
		"mid":                      {says: []string{"class" + own + "BE", "tier" + own + "mid"}, want: "refused", text: []string{"is above the batch that this node gives to pods without mid resources", `"tier"`}},
		"mid, allowed":             {says: []string{"class" + own + "BE", "tier" + own + "mid"}, rules: authorizeAll, want: "identity=-1 " + beMemory + " tier=mid"},
		"mid by a rule":            {rules: classify("class", "BE", "tier", "mid"), want: "identity=-1 " + beMemory + " tier=mid"},
		"mid as a rule has it":     {says: []string{"tier" + own + "mid"}, rules: classify("class", "BE", "tier", "mid"), want: "identity=-1 " + beMemory + " tier=mid"},
		"a tier before the rule's": {says: []string{"tier" + own + "free"}, rules: classify("class", "BE", "tier", "mid"), want: "identity=-1 " + beMemory + " tier=free"},
		"the class's tier":         {says: []string{"class" + own + "BE"}, rules: func(r *Rules) { r.Classes.BE = given("tier", "free") }, want: "tier=free"},
		"Koordinator's free":       {says: []string{"label " + koordPriority + "=koord-free"}, want: "identity=-1 " + beMemory + " tier=free"},
		"Koordinator's mid of BE":  {says: []string{qosClass + "BE", "label " + koordPriority + "=koord-mid"}, want: "identity=-1 " + beMemory, text: []string{"without mid resources", "(ignored)"}},
		"its mid, allowed":         {says: []string{qosClass + "BE", "label " + koordPriority + "=koord-mid"}, rules: authorizeAll, want: "identity=-1 " + beMemory + " tier=mid"},
		"its prod of BE":           {says: []string{qosClass + "BE", "label " + koordPriority + "=koord-prod"}, want: "identity=-1 " + beMemory},
		"own before Koordinator's": {says: []string{"tier" + own + "free", "label " + koordPriority + "=koord-batch"}, want: "identity=-1 " + beMemory + " tier=free", text: []string{"the latter counts"}},
		"requirements":             {says: []string{"required" + own + "memory-qos, cpu-burst,memory-qos"}, want: "required=memory-qos+cpu-burst"},
		"a required typo":          {says: []string{"required" + own + "memory_qos"}, want: "refused", text: []string{"did you mean memory-qos?"}},
		"a required class":         {says: []string{"required" + own + "class"}, want: "refused", text: []string{`"class" is not known here`}},
		"actions":                  {says: []string{"allow" + own + "throttle, evict"}, want: "allow=1001"},
		"no actions":               {says: []string{"allow" + own + "none"}, want: "allow=0000"},
		"an action's typo":         {says: []string{"allow" + own + "reclame"}, want: "refused", text: []string{"did you mean reclaim?"}},
		"none and another":         {says: []string{"allow" + own + "none,evict"}, want: "refused", text: []string{"is not known here"}},
		"BE that may not be cut":   {says: []string{"class" + own + "BE", "allow" + own + "reclaim"}, want: "refused", text: []string{"class BE may be throttled", "take class LS"}},
		"BE that may":              {says: []string{"class" + own + "BE", "allow" + own + "throttle,demote,reclaim,evict"}, want: "identity=-1 " + beMemory + " allow=1111"},
		"evicted never":            {says: []string{"evict" + own + "never"}, want: "evict=never"},
		"evicted in turn":          {says: []string{"evict" + own + "-3"}, want: "evict=-3"},
		"BE evicted never":         {says: []string{"class" + own + "BE", "evict" + own + "never"}, want: "refused", text: []string{"not for class BE"}},
		"no eviction":              {says: []string{"evict" + own + "no"}, want: "refused", text: []string{"never or a whole number"}},
		"Koordinator's rank":       {says: []string{koordEvictRank + "=-2"}, want: "evict=-2"},
		"its rank and class":       {says: []string{"label " + koordPriority + "=koord-free", koordEvictRank + "=-2"}, want: "identity=-1 " + beMemory + " evict=-2 tier=free"},
		"a class, evict its own":   {says: []string{"label " + koordPriority + "=koord-mid", "evict" + own + "5"}, want: "evict=5"},
		"a class and never":        {says: []string{"label " + koordPriority + "=koord-mid", "label " + koordEvict + "=false"}, want: "evict=never"},
		"its bad rank":             {says: []string{koordEvictRank + "=first"}, text: []string{"(ignored)"}},
		"its never":                {says: []string{"label " + koordEvict + "=false", koordEvictRank + "=-2"}, want: "evict=never"},
		"its never of BE":          {says: []string{qosClass + "BE", "label " + koordEvict + "=false"}, want: "identity=-1 " + beMemory, text: []string{"not for class BE", "(ignored)"}},
		"its always":               {says: []string{"label " + koordEvict + "=true"}},
		"priority of a later band": {says: []string{"label " + koordPriority + "=koord-gold"}},

		// Settings of the configuration
		"class LSR":                  {says: []string{"class" + own + "LSR"}, want: "identity=2 " + lsrMemory},
		"class BE":                   {says: []string{"class" + own + "BE"}, want: "identity=-1 " + beMemory},
		"SYSTEM":                     {says: []string{"namespace=kube-system", "class" + own + "SYSTEM"}},
		"the default pool's":         {rules: pool, want: "net=0x100001"},
		"a pool's":                   {says: []string{"pool" + own + "critical"}, rules: poolAllowed, want: "identity=2 weight=200% oom=-500"},
		"another pool's":             {says: []string{"pool" + own + "critical"}, rules: pool, want: "refused", text: []string{"keys of its own", `"pool"`}},
		"Katalyst's other pool":      {says: []string{cpuEnh + `{"cpuset_pool":"critical"}`}, rules: pool, want: "net=0x100001", text: []string{"keys of its own", "(ignored)"}},
		"its own pool":               {says: []string{"pool" + own + "online"}, rules: pool, want: "net=0x100001"},
		"a pool by a rule":           {rules: func(r *Rules) { pool(r); classify("pool", "critical")(r) }, want: "identity=2 weight=200% oom=-500"},
		"the batch pool's and BE's":  {says: []string{"class" + own + "BE"}, rules: pool, want: "identity=-1 weight=10% " + beMemory},
		"a pool before the class":    {says: []string{"class" + own + "BE", "pool" + own + "critical"}, rules: poolAllowed, want: "identity=2 weight=200% " + beMemory + " oom=-500"},
		"a rule before the pool":     {says: []string{"pool" + own + "critical"}, rules: func(r *Rules) { poolAllowed(r); classify("weight", "300%")(r) }, want: "identity=2 weight=300% oom=-500"},
		"a dialect before the rule":  {says: []string{koordOOM + "=100"}, rules: classify("oom-score", "-1000"), want: "oom=100"},
		"own before the class":       {says: []string{"class" + own + "LSR", "cpu-identity" + own + "-1"}, want: "identity=-1 " + lsrMemory},
		"a rule's class is followed": {rules: classify("class", "BE"), want: "identity=-1 " + beMemory},
		"a class that can't be":      {says: []string{"class" + own + "LSR"}, rules: func(r *Rules) { ignore(r); r.Classes.LS = given("weight", "150%") }, qos: workload.BestEffort, want: "weight=150%", text: []string{"requests none"}},
		"a rule for another class":   {rules: classify("cpu-burst", "100%", "class", "BE"), want: "identity=-1 " + beMemory},
		"the rule's rank for BE":     {rules: classify("class", "BE", "evict", "never"), want: "identity=-1 " + beMemory, text: []string{"not for class BE", "(ignored)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := rules()
			if c.rules != nil {
				c.rules(&rules)
			}
			qos, milli := workload.Guaranteed, int64(4000)
			if c.qos != workload.UnknownQoS {
				qos, milli = c.qos, 0
			}
			p, app := pod(qos, milli, c.says...)
			p.UID = "uid-1"
			got, warnings, err := rules.Request(Facts{ThreadsPerCore: 2}, p, app)
			if c.want == "refused" {
				if _, ok := errors.AsType[*Invalid](err); !ok {
					t.Fatalf("%q, %v, want an error", spell(&got.Tuning), err)
				}
				contains(t, err.Error(), c.text)
				return
			}
			if err != nil || spell(&got.Tuning) != c.want {
				t.Errorf("got %q, %v, want %q", spell(&got.Tuning), err, c.want)
			}
			if want := min(1, len(c.text)); len(warnings) != want {
				t.Errorf("warnings %q, want %d", warnings, want)
			} else if want == 1 {
				contains(t, warnings[0].Text, append(c.text, "container "+p.Namespace+"/web/app"))
			}
		})
	}
}

// Each knob names its source, and each part of memory-qos its own.
func TestKnobsSayWhereFrom(t *testing.T) {
	t.Parallel()
	rules := rules()
	rules.PoolSets = map[string]Set{"batch": given("weight", "10%")}
	p, app := pod(workload.BestEffort, 0, "class.sluice.dev=BE", "memory-qos.sluice.dev/container.app={oomGroup: true}", koordMemory+`={"wmarkMinAdj":0,"wmarkRatio":0,"wmarkScalePermill":1}`)
	got, _, err := rules.Request(Facts{}, p, app)
	if err != nil {
		t.Fatal(err)
	}
	want := []workload.RequestKey{
		{Key: "class", Value: "BE", Source: "annotation class.sluice.dev"},
		{Key: "cpu-identity", Value: "-1", Source: "config classes.BE"},
		{Key: "memory-qos", Value: "{oomGroup: true}", Source: "annotation memory-qos.sluice.dev/container.app"},
		{Key: "memory-qos", Value: "{wmarkRatio: 0, wmarkScale: 1, wmarkMinAdj: 0}", Source: "annotation " + koordMemory},
		{Key: "weight", Value: "10%", Source: "config pool batch"},
	}
	if !reflect.DeepEqual(got.Keys, want) {
		t.Errorf("%v, want %v", got.Keys, want)
	}
}

// A mapping that is designed to be slow to parse is refused.
func TestMappingsAreBounded(t *testing.T) {
	t.Parallel()
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := byte('b'); c < 'z'; c++ {
		bomb += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+string(c-1)+",", 9) + "]\n"
	}
	for _, text := range []string{bomb, strings.Repeat("[", maxLength), strings.Repeat("{a: ", maxLength/4), strings.Repeat("- ", maxLength/2), "&a {minPercent: *a}"} {
		if _, err := parseMemoryQoS(text); err == nil {
			t.Errorf("%.40q is taken", text)
		}
		if _, err := parseIO(text); err == nil {
			t.Errorf("%.40q is taken", text)
		}
	}
}
