package main

import (
	"fmt"
	"strings"

	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// planText tells people what pods would get, in 80 columns.
func planText(plans []planned) string {
	var out strings.Builder
	for i, p := range plans {
		if i > 0 {
			out.WriteString("\n")
		}
		paragraph(&out, "", fmt.Sprintf("%s would be a %s pod of %s.", p.Pod, p.QoS, humanize.Count(len(p.Answers), "container")))
		for j, a := range p.Answers {
			name := p.containers[j].Name
			if p.containers[j].State == workload.Stopped {
				name += " (init container)"
			}
			out.WriteString("\n")
			paragraph(&out, "  ", name)
			if a.Error != "" {
				table(&out, "    ", columns, [][]string{{"refused", a.Error}})
			} else {
				table(&out, "    ", columns, [][]string{
					{"class", a.Class.String()},
					{"CPUs", cpusText(a.CPUs)},
					{"memory", memsText(a.Mems)},
					{"CPU quota", quotaText(a.Unlimited)},
					{"why", a.Why},
				})
			}
			reasons(&out, "    ", a.Settings, a.Warnings)
		}
	}
	return out.String()
}
