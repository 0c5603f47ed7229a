package knobs

// Drift is a knob that another program changed after Sluice had set it, with evidence of which
// one it was.
type Drift struct {
	Object   Object
	Knob     Knob
	Found    Value
	Recorded Value // value in the runtime's record of the container; nil if unknown or not recorded
	Default  Value // value of a new cgroup; nil if unknown

	Systemd   bool // the cgroup is a unit of systemd
	Koordlet  bool // koordlet runs on the node
	Katalyst  bool // katalyst-agent runs on the node
	StaticCPU bool // the kubelet's static CPU manager runs on the node
}

// Suspect names the likely author of a drift and the evidence. It is a guess, and worded as
// one.
func (d Drift) Suspect() string {
	container := d.Object.Level == ContainerLevel
	switch {
	case container && d.Recorded != nil && d.Found == d.Recorded && d.Systemd:
		return "the runtime (an update, or a systemd daemon-reload): it is the value in the runtime's record"
	case container && d.Recorded != nil && d.Found == d.Recorded:
		return "the runtime (an update): it is the value in the runtime's record"
	case container && d.Knob == CPUs && d.StaticCPU:
		return "the kubelet: its static CPU manager writes the CPUs of containers every few seconds"
	case d.Systemd && d.Default != nil && d.Found == d.Default:
		return "systemd: on a daemon-reload, and when the kubelet or the runtime sets one property of a unit, it writes all; for this one it has the kernel's default"
	case d.Koordlet && d.Katalyst:
		return "koordlet or katalyst-agent: both run on this node and write such files; stop them where Sluice runs"
	case d.Koordlet:
		return "koordlet: it runs on this node and writes such files; stop it where Sluice runs"
	case d.Katalyst:
		return "katalyst-agent: it runs on this node and writes such files; stop it where Sluice runs"
	case d.Object.Level == ClassLevel && table[d.Knob].kubelet:
		return "the kubelet: it writes this file of its QoS classes' cgroups every minute and with each new pod"
	case d.Object.Level == PodLevel && table[d.Knob].kubelet:
		return "the kubelet: it writes this file of a pod's cgroup when the pod is made or resized"
	case container && d.Knob.Recorded() && d.Recorded == nil:
		return "the runtime (an update) or the kubelet: the runtime's record of it is not known here"
	case d.Default != nil && d.Found == d.Default:
		return "somebody who made the cgroup anew, or the kernel: it is the kernel's default"
	}
	return "somebody else: neither the runtime's record, nor the kubelet's files, nor the kernel's default explain it"
}
