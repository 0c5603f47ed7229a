// Package config reads the node's configuration, sluice.yaml. It has the types, the defaults,
// and a strict reader that reports every mistake in the file with its line. configs/sluice.yaml
// documents each key.
package config

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Config is sluice.yaml.
type Config struct {
	Mode          Mode          `yaml:"mode"`          // On changes the node; preview decides, logs and reports, but changes nothing.
	Neighbours    Neighbours    `yaml:"neighbours"`    // What to do beside koordlet or katalyst-agent: only preview, or ignore them.
	FailurePolicy FailurePolicy `yaml:"failurePolicy"` // What happens to containers that start while Sluice is not running: open lets them run, closed fails them (NRI 0.12.5).

	Reserved cpuset.Set `yaml:"reserved"` // CPUs that no container gets, for example 0-1,64-65.
	System   cpuset.Set `yaml:"system"`   // CPUs for class SYSTEM; by default SYSTEM shares those of LS.
	Pools    Pools      `yaml:"pools"`

	annotation.Rules `yaml:",inline"`

	RDT    RDT    `yaml:"rdt"`
	Memory Memory `yaml:"memory"`
	IOCost IOCost `yaml:"ioCost"`

	NewidleBalance NewidleBalance `yaml:"newidleBalance"` // When a CPU that has nothing left to run looks for threads that wait on other CPUs: as the kernel chooses, or always.

	CPUNormalization CPUNormalization `yaml:"cpuNormalization"`

	VMRuntimes     []string      `yaml:"vmRuntimes"`     // Patterns of the runtime handlers of virtual machines, which Sluice counts but does not place.
	ReserveTimeout time.Duration `yaml:"reserveTimeout"` // How long a container may hold CPUs before it starts.
	DriftInterval  time.Duration `yaml:"driftInterval"`  // Time between two comparisons of all settings with the kernel.
	RecordUpdates  RecordUpdates `yaml:"recordUpdates"`
	Steer          Steer         `yaml:"steer"`
	StateDir       string        `yaml:"stateDir"`     // Folder of the audit trail, the batch switch, what was learned of the usage, and resource claims.
	RuntimeDir     string        `yaml:"runtimeDir"`   // Folder on tmpfs for original values and the failsafe's plan.
	StatusSocket   string        `yaml:"statusSocket"` // Path of the socket for sluice commands.
	Metrics        Metrics       `yaml:"metrics"`
	Web            Web           `yaml:"web"`
	Log            Log           `yaml:"log"`

	Control control.Config `yaml:"control"`

	KeepWeights bool `yaml:"-"` // No pod's CPU weight is raised, because the kubelet takes it for a request.
}

// RecordUpdates brings the runtime's own records into agreement with the kernel.
type RecordUpdates struct {
	Enabled bool          `yaml:"enabled"` // Update the runtime's own record of containers as well.
	Delay   time.Duration `yaml:"delay"`   // Delay of that update after the last change of a container.
}

// Steer keeps the CPUs of LSE containers free of what is not in a container.
type Steer struct {
	IRQs       bool `yaml:"irqs"`       // Keep interrupts off the CPUs of LSE containers; irqbalance must exclude them.
	Workqueues bool `yaml:"workqueues"` // Keep the kernel's work queues off them as well.
}

// Log is where and how the plugin logs.
type Log struct {
	Level  LogLevel  `yaml:"level"`  // Least level of messages: error, warn, info or debug.
	Format LogFormat `yaml:"format"` // Format of messages: text or json.
	File   string    `yaml:"file"`   // Absolute path of the log; without it, standard error.
}

// Default returns the configuration as shipped. It changes nothing for pods without requests to
// Sluice.
func Default() *Config {
	c := &Config{
		Mode:          On,
		Neighbours:    NeighboursPreview,
		FailurePolicy: FailOpen,
		Pools:         Pools{Mode: Overlap, List: []Pool{{Name: "critical"}, {Name: "online"}, {Name: "batch"}}},
		Rules:         annotation.DefaultRules(),
		RDT:           RDT{Mode: RDTOn, Partitions: map[string]RDTShare{}, Classes: map[string]RDTClass{}},
		Memory:        Memory{GlobalWatermark: WatermarkOff},
		IOCost:        IOCost{Mode: IOCostOff, Disks: []IOCostDisk{}},

		NewidleBalance: NewidleKernel,

		CPUNormalization: CPUNormalization{Ratio: 100},
		Control:          control.DefaultConfig(),
		VMRuntimes:       []string{"kata*"},
		ReserveTimeout:   5 * time.Minute,
		DriftInterval:    900 * time.Millisecond,
		RecordUpdates:    RecordUpdates{Enabled: true, Delay: 2 * time.Second},
		StateDir:         "/var/lib/sluice",
		RuntimeDir:       "/run/sluice",
		StatusSocket:     status.DefaultSocket,
		Log:              Log{Level: "info", Format: "text"},
	}
	c.completeRules()
	return c
}

// completeRules passes to the rules for pods what they need of the other keys.
func (c *Config) completeRules() {
	r := &c.Rules
	r.Pools, r.DefaultPool, r.PoolSets = c.Pools.Names(), "", map[string]annotation.Set{}
	if len(r.Pools) > 0 {
		policy := c.Policy()
		r.DefaultPool = policy.DefaultPool()
	}
	for _, p := range c.Pools.List {
		if len(p.Set) > 0 {
			r.PoolSets[p.Name] = p.Set
		}
	}
	r.NeverEvict = c.Control.Eviction.Never
	r.LeastSLOPercent = c.Control.SLO.LeastPercent
	r.RDTClasses, r.RDTPerPod = c.rdtClasses(), c.RDT.PerPod && c.RDT.Mode == RDTOn
}

// RunsInVM reports whether the pod's containers run in a virtual machine, which this node can't
// control from outside.
func (c *Config) RunsInVM(pod *workload.Pod) bool {
	return matchesAny(c.VMRuntimes, pod.RuntimeHandler)
}
