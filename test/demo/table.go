package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// firstTable returns what each container saw first.
func firstTable(all []pod, without, with round) string {
	var out strings.Builder
	out.WriteString("\t\t\tWITHOUT SLUICE\t\t\tWITH SLUICE\t\t\n")
	out.WriteString("POD\tCLASS\tANNOTATION\tCPUS\tNODES\tQUOTA\tCPUS\tNODES\tQUOTA\n")
	for _, p := range all {
		annotation := "none"
		for key, value := range p.annotations() {
			annotation = key + ": " + value
		}
		fmt.Fprintf(&out, "%s\t%s\t%s\t%s\t%s\n", p.name, p.class, annotation, without.cells(p), with.cells(p))
	}
	return aligned(out.String())
}

func (r round) cells(p pod) string {
	s, ok := r.first[p.name]
	if !ok {
		return "refused\t\t"
	}
	quota := "none"
	if s.limit != unlimited {
		quota = cpus(s.limit)
	}
	return fmt.Sprintf("%s\t%s\t%s", s.cpus, s.nodes, quota)
}

func cpus(n workload.MilliCPU) string {
	if n == 1000 {
		return "1 CPU"
	}
	return n.String() + " CPUs"
}

// besideTable returns where the others could run while the LSE pod ran.
func besideTable(all []pod, without, with round) string {
	var out strings.Builder
	out.WriteString("POD\tWITHOUT SLUICE\tWITH SLUICE\n")
	for _, p := range all {
		if set, ok := without.beside[p.name]; ok {
			fmt.Fprintf(&out, "%s\t%s\t%s\n", p.name, set, with.beside[p.name])
		}
	}
	return "Where the containers before it might run while lse ran:\n\n" + aligned(out.String())
}

// refusals returns the messages that the kubelet would write to the pods' events.
func refusals(all []pod, r round) string {
	var out strings.Builder
	for _, p := range all {
		if err := r.refused[p.name]; err != nil {
			fmt.Fprintf(&out, "\nPod %s (%s, %s) was refused; its events would say:\n\n", p.name, p.class, cpus(p.cpu))
			for _, line := range folded(err.Error(), 78) {
				fmt.Fprintf(&out, "  %s\n", line)
			}
		}
	}
	return out.String()
}

// folded breaks text at spaces into lines of at most width, if possible.
func folded(text string, width int) []string {
	lines := []string{""}
	for word := range strings.FieldsSeq(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case len(*last)+1+len(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}

// aligned arranges cells that are separated by tabs in columns.
func aligned(text string) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	_, _ = w.Write([]byte(text)) // a Builder never fails
	_ = w.Flush()
	lines := strings.Split(out.String(), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}

// refusal is the plugin's message about a container that it refused.
type refusal struct{ text string }

func (r refusal) Error() string { return r.text }

// refusalOf returns the plugin's refusal in an error, or nil for another error.
func refusalOf(err error) error {
	const says = "sluice: container "
	if err == nil {
		return nil
	}
	_, text, ok := strings.Cut(err.Error(), says)
	if !ok {
		return nil
	}
	return refusal{says + text}
}
