package status

import (
	"fmt"
	"slices"
	"strings"
)

// Find returns the containers of the one pod that a name means. An exact name goes
// before the beginning of an id.
func Find(containers []Container, name string) ([]Container, error) {
	found := filter(containers, func(c Container) bool { return named(c.Ref, name) })
	if len(found) == 0 && name != "" {
		found = filter(containers, func(c Container) bool { return strings.HasPrefix(c.ID, name) })
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no container on this node is named %.200q or has an id that begins so; 'sluice status' lists them", name)
	}
	if pods := PodNames(found); len(pods) > 1 {
		const shown = 20
		more := ""
		if n := len(pods) - shown; n > 0 {
			pods, more = pods[:shown], fmt.Sprintf(" and %d more", n)
		}
		return nil, fmt.Errorf("%q may mean any of %s%s: name one of them", name, strings.Join(pods, ", "), more)
	}
	return found, nil
}

func filter(containers []Container, keep func(Container) bool) []Container {
	return slices.DeleteFunc(slices.Clone(containers), func(c Container) bool { return !keep(c) })
}

// named reports whether a name means the container "namespace/pod/container".
func named(ref, name string) bool {
	part := strings.SplitN(ref, "/", 3)
	if len(part) < 3 {
		return ref == name
	}
	namespace, pod, container := part[0], part[1], part[2]
	switch name {
	case ref, pod, namespace + "/" + pod, pod + "/" + container:
		return true
	}
	return false
}

// PodNames lists the pods of the containers as "namespace/pod", each once.
func PodNames(containers []Container) []string {
	var names []string
	for _, c := range containers {
		name := c.Ref
		if end := strings.LastIndexByte(c.Ref, '/'); end >= 0 {
			name = c.Ref[:end]
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Complete lists what a shell may complete of a pod's name, or of a container's where a pod
// is already named.
func Complete(containers []Container, begun string) []string {
	names := PodNames(containers)
	if strings.Count(begun, "/") > 1 {
		names = nil
		for i := range containers {
			names = append(names, containers[i].Ref)
		}
	}
	var all []string
	for _, name := range names {
		// A shell types what it completes: a name that isn't Kubernetes' own could do harm.
		if strings.HasPrefix(name, begun) && !strings.HasPrefix(name, "-") && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-./") == "" {
			all = append(all, name)
		}
	}
	return all
}
