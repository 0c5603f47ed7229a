package render

import (
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/engine/audit"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// partRows lists the parts of the fleet's policy, with the keys whose values come from each.
func partRows(c *status.Config) (rows [][]string) {
	for i := range c.Parts {
		p := &c.Parts[i]
		text := "part " + p.Name + " sets " + strings.Join(p.Keys, ", ")
		switch {
		case len(p.Keys) == 0 && p.Problem != "":
			text = "part " + p.Name + " sets nothing: " + p.Problem
		case p.Problem != "":
			text += "; " + p.Problem
		case len(p.Keys) == 0:
			text = "part " + p.Name + " sets nothing: other parts set all of its keys"
		}
		rows = append(rows, []string{"policy", text})
	}
	return rows
}

// fromPart names the part of the fleet's policy from which a key's value comes; "" if none.
func fromPart(c *status.Config, key string) string {
	if name := c.PartOf(key); name != "" {
		return "from part " + name + " of the fleet's policy"
	}
	return ""
}

// PolicyKey is a key of the configuration whose value comes from a part of the fleet's policy.
type PolicyKey struct {
	Key  string `json:"key"`  // Such as "control.batch.thresholdPercent".
	Part string `json:"part"` // The name of the part's ConfigMap.
}

// policyKeys lists the keys that concern a pod and whose values come from parts of the fleet's policy:
// those of its containers' pools, of the controllers that act on containers of their classes, and of
// those that decided about the pod. trail is as for Explain.
func policyKeys(s *status.Status, containers []status.Container, pod string, trail []audit.Entry) (found []PolicyKey) {
	about := []string{"control.mode"}
	for i := range containers {
		c := &containers[i]
		if !strings.HasPrefix(c.Ref, pod+"/") {
			continue
		}
		if c.Pool != "" {
			about = append(about, "pools", "control.pools")
		}
		if c.Class == workload.BE {
			about = append(about, "control.batch", "control.memory", "control.cache", "control.eviction", "control.rules", "control.windows")
		} else {
			about = append(about, "control.burst", "control.demotion")
		}
	}
	if s.Loop != nil {
		for _, d := range podDecisions(pod, s.Loop.Decisions, trail) {
			about = append(about, "control."+d.Controller)
		}
	}
	for i := range s.Config.Parts {
		p := &s.Config.Parts[i]
		var keys []string
		for _, key := range about {
			keys = append(keys, p.Concerns(key)...)
		}
		slices.Sort(keys)
		for _, key := range slices.Compact(keys) {
			found = append(found, PolicyKey{Key: key, Part: p.Name})
		}
	}
	return found
}

// policyText writes the result of policyKeys.
func policyText(out *strings.Builder, keys []PolicyKey) {
	if len(keys) == 0 {
		return
	}
	rows := [][]string{{"CONFIGURED", "BY PART OF THE FLEET'S POLICY"}}
	for _, k := range keys {
		rows = append(rows, []string{k.Key, k.Part})
	}
	out.WriteString("\n")
	terminal.Table(out, "", terminal.Columns, rows)
}
