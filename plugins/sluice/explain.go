package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/status"
)

func newExplain() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain POD[/CONTAINER]",
		Short: "Explain the settings of a pod's containers",
		Long: `Show the settings of a pod's containers, the reason for each, and the
annotation, label or configuration key it came from. If the control loop is
enabled, also show what the containers use, which batch pods disturb them, and
the loop's decisions about them.

Name the pod as POD, NAMESPACE/POD, POD/CONTAINER, NAMESPACE/POD/CONTAINER, or
by the first characters of a container ID. If several pods match, explain lists
them.`,
		Example: `  sluice explain db-0
  sluice explain data/db-0/main
  sluice explain 4f1c2a9 -o json`,
		Args: oneWord("the name of one pod or container"),
	}
	output := outputFlag(c, "text", "json")
	socket := socketFlag(c)
	c.ValidArgsFunction = func(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completePods(*socket, begun), cobra.ShellCompDirectiveNoFileComp
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		s, err := readStatus(*socket)
		if err != nil {
			return err
		}
		found, err := find(s.Containers, args[0])
		if err != nil {
			return err
		}
		if output.value == "json" {
			return writeJSON(c.OutOrStdout(), found)
		}
		_, err = io.WriteString(c.OutOrStdout(), explainText(s, found, podTrail(s.Loop, podNames(found)[0])))
		return err
	}
	return c
}

// find returns the containers of the one pod that a name means. An exact name
// goes before the beginning of an id.
func find(containers []status.Container, name string) ([]status.Container, error) {
	found := filter(containers, func(c status.Container) bool { return named(c.Ref, name) })
	if len(found) == 0 && name != "" {
		found = filter(containers, func(c status.Container) bool { return strings.HasPrefix(c.ID, name) })
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no container on this node is named %.200q or has an id that begins so; 'sluice status' lists them", name)
	}
	if pods := podNames(found); len(pods) > 1 {
		const shown = 20
		more := ""
		if n := len(pods) - shown; n > 0 {
			pods, more = pods[:shown], fmt.Sprintf(" and %d more", n)
		}
		return nil, fmt.Errorf("%q may mean any of %s%s: name one of them", name, strings.Join(pods, ", "), more)
	}
	return found, nil
}

func filter(containers []status.Container, keep func(status.Container) bool) []status.Container {
	return slices.DeleteFunc(slices.Clone(containers), func(c status.Container) bool { return !keep(c) })
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

// podNames lists the pods of the containers as "namespace/pod", each once.
func podNames(containers []status.Container) []string {
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
