package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// pods returns the demo's pods in the order in which they run. All but the last exist at the same
// time; the last one comes when the other pins are gone, so that two CPUs suffice.
func pods(m *topology.Machine) []pod {
	const mib = 1 << 20
	threads := m.ThreadsPerCore()
	pin := threads * max(1, (m.Online.Size()/threads-1)/4)
	rest := m.Online.Size() - pin
	whole := func(n int) workload.MilliCPU { return workload.MilliCPU(n) * 1000 }
	return []pod{
		{name: "ls", namespace: "demo", class: workload.LS, cpu: 100, memory: 32 * mib},
		{name: "be", namespace: "demo", class: workload.BE, annotated: true},
		{name: "system", namespace: "kube-system", class: workload.System, annotated: true},
		{name: "lse", namespace: "demo", class: workload.LSE, annotated: true, guaranteed: true, cpu: whole(pin), memory: 32 * mib},
		{name: "ls-late", namespace: "demo", class: workload.LS, cpu: 100, memory: 32 * mib},
		{name: "greedy", namespace: "demo", class: workload.LSR, annotated: true, guaranteed: true, cpu: whole(rest), memory: 32 * mib},
		{name: "lsr", namespace: "demo", class: workload.LSR, annotated: true, guaranteed: true, cpu: whole(pin), memory: 32 * mib},
	}
}

// round is what was seen in one run of all pods.
type round struct {
	first   map[string]first
	beside  map[string]cpuset.Set // CPUs of the pods before lse, while lse runs
	refused map[string]error
}

// perform runs the pods without and with Sluice and prints both results.
func perform(ctx context.Context, n node, out io.Writer) error {
	m := n.machine()
	all := pods(m)
	fmt.Fprintf(out, "This machine has CPUs %s, memory nodes %s, threads per core: %d.\n", m.Online, m.MemoryNodes(), m.ThreadsPerCore())

	fmt.Fprintln(out, "Running the pods without Sluice.")
	without, err := play(ctx, n, all)
	if err != nil {
		return err
	}
	if err := cleared(ctx, n, all); err != nil {
		return err
	}
	fmt.Fprintln(out, "Running the same pods with Sluice.")
	if err := n.startSluice(); err != nil {
		return err
	}
	with, err := play(ctx, n, all)
	if err != nil {
		return err
	}
	fmt.Fprint(out, "\n", n.seen(), "\n\n", firstTable(all, without, with), "\n", besideTable(all, without, with), refusals(all, with))
	if err := ask(ctx, n, []string{"status"}, out); err != nil {
		return err
	}
	if last := all[len(all)-1]; with.refused[last.name] == nil {
		if err := ask(ctx, n, []string{"explain", last.namespace + "/" + last.name}, out); err != nil {
			return err
		}
	}
	return cleared(ctx, n, all)
}

// play runs the pods. The last pod and those that share CPUs keep running.
func play(ctx context.Context, n node, all []pod) (round, error) {
	r := round{first: map[string]first{}, beside: map[string]cpuset.Set{}, refused: map[string]error{}}
	last := len(all) - 1
	for i, p := range all {
		if i == last {
			if err := cleared(ctx, n, slices.DeleteFunc(slices.Clone(all[:last]), func(p pod) bool { return !p.class.Pinned() })); err != nil {
				return r, err
			}
		}
		if err := ctx.Err(); err != nil {
			return r, err
		}
		saw, err := n.run(p)
		if refusal := refusalOf(err); refusal != nil {
			r.refused[p.name] = refusal
			continue
		}
		if err != nil {
			return r, err
		}
		r.first[p.name] = saw
		if p.class != workload.LSE {
			continue
		}
		for _, before := range all[:i] {
			if r.beside[before.name], err = n.cpus(before.name); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

// cleared removes the pods.
func cleared(ctx context.Context, n node, all []pod) error {
	for _, p := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := n.remove(p.name); err != nil {
			return err
		}
	}
	return nil
}

// ask runs a command line against the plugin and shows it.
func ask(ctx context.Context, n node, args []string, out io.Writer) error {
	fmt.Fprintf(out, "\n$ sluice %s\n", strings.Join(args, " "))
	cmd := n.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = out, out
	return cmd.Run()
}
