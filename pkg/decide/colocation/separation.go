package colocation

import "github.com/sluice-dev/sluice/pkg/decide/control"

// StepSeparation decides which noisy pods are kept apart from the others of their pools, after all controllers of Step. It
// acts if cpusets can be written. The function fits is that of control.Separation.
func (c *Controllers) StepSeparation(v *NodeView, in *Inputs, disturbed []control.Disturbance, cpusets bool, fits func(uid string) (int, error)) (pods []string, acts bool, decided Decided) {
	mode := in.Of(in.Noisy.Mode)
	if mode == control.Off {
		return nil, false, Decided{}
	}
	if mode == control.On && !cpusets {
		mode = control.Preview
	}
	acts = mode == control.On
	pods, decisions := c.Separation.Step(&v.View, disturbed, c.Noisy, acts, c.Culprit.Trying(), fits)
	if v.WatchClosely == "" {
		v.WatchClosely = c.Separation.Closely()
	}
	return pods, acts, Decided{mode, decisions}
}
