package agent

// updating reports whether the cgroup is a container's that the runtime may be
// updating for Sluice right now.
func (a *Agent) updating(path string) bool {
	if a.lane.pending == nil {
		return false
	}
	c, ok := a.Containers[a.lane.pending.ContainerID]
	return ok && c.Path == path
}
