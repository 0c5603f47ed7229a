package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/view/whatif"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Plan writes what pods would get, 80 columns wide.
func Plan(w io.Writer, plans []whatif.Plan) error {
	var out strings.Builder
	for i, p := range plans {
		if i > 0 {
			out.WriteString("\n")
		}
		paragraph(&out, "", fmt.Sprintf("%s would be a %s pod of %s.", p.Pod, p.QoS, humanize.Count(len(p.Answers), "container")))
		for j, a := range p.Answers {
			name := p.Containers[j].Name
			if p.Containers[j].State == workload.Stopped {
				name += " (init container)"
			}
			out.WriteString("\n")
			paragraph(&out, "  ", name)
			if a.Problem != "" {
				terminal.Table(&out, "    ", terminal.Columns, [][]string{{"refused", a.Problem}})
			} else {
				terminal.Table(&out, "    ", terminal.Columns, [][]string{
					{"class", status.ClassText(a.Class, a.Tier)},
					{"CPUs", cpusText(a.CPUs)},
					{"memory", memsText(a.Mems)},
					{"CPU quota", quotaText(a.Unlimited)},
					{"why", a.Why},
				})
			}
			reasons(&out, "    ", a.Keys, a.Warnings)
		}
	}
	return flush(w, &out)
}
