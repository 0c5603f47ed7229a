package status

// Restored is what 'sluice restore' has given back, or with DryRun would give back.
type Restored struct {
	DryRun    bool       `json:"dryRun"`
	Changes   []Returned `json:"changes"`
	IRQs      int        `json:"irqs"`      // IRQs whose CPUs were given back
	LeftAlone []string   `json:"leftAlone"` // settings that somebody else has changed since
}

// Returned is a kernel setting that has its earlier value again.
type Returned struct {
	Where   string `json:"where"` // the container, the pod or another cgroup
	Setting string `json:"setting"`
	From    string `json:"from"`
	To      string `json:"to"`
}
