package status

// Restored is what 'sluice restore' has given back, or with DryRun would give back.
type Restored struct {
	DryRun    bool       `json:"dryRun"`    // Whether nothing was changed.
	Changes   []Returned `json:"changes"`   // Knobs that have their earlier values again.
	IRQs      int        `json:"irqs"`      // Number of IRQs whose CPUs were given back.
	Disks     int        `json:"disks"`     // Number of disks whose parameters of io.cost were given back.
	Limited   int        `json:"limited"`   // Number of pods whose limits on what they send ended.
	LeftAlone []string   `json:"leftAlone"` // Knobs that another program has changed since, for example "cpu.burst of shop/db/main".
}

// Returned is a knob that has its earlier value again.
type Returned struct {
	Where string `json:"where"` // Cgroup of the knob: a container, a pod or a path.
	Knob  string `json:"knob"`  // Kernel's control, for example "cpu.burst".
	From  string `json:"from"`  // Value that Sluice had set.
	To    string `json:"to"`    // Value that the knob had before.
}
