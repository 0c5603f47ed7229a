package main

import (
	"strings"
	"testing"
	"unicode"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/status/statustest"
)

// evil is a name that must not reach a terminal: it sets the title, clears the screen with 7-bit
// and 8-bit sequences, switches to right-to-left text, and starts new lines.
const evil = "team/\x1b]0;owned\a\x1b[2J\u009b2J\u202eweb\u2028\r\nroot/pod\t\x00/x\xff"

// checkPrintable fails the test if a terminal would interpret part of a text.
func checkPrintable(t *testing.T, what, text string) {
	t.Helper()
	if !strings.Contains(text, "owned") {
		t.Errorf("%s: the name is not in it: nothing is tested\n%q", what, text)
	}
	for line := range strings.Lines(text) {
		if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%s: not printable: %q", what, line)
		}
	}
}

// A shell inserts completions into the command line as they are.
func TestHostileCompletion(t *testing.T) {
	t.Parallel()
	s := statustest.Calm()
	for _, name := range []string{evil, "a/$(reboot)/c", "a/`reboot`/c", "a/b;c/d", "a/b c/d", "-a/b/c", "a/é/c"} {
		s.Containers = append(s.Containers, status.Container{Ref: name})
	}
	socket := serve(t, plugin{status: s})
	for _, args := range [][]string{{"explain", "--status-socket", socket, ""}, {"log", "--status-socket", socket, "--pod", ""}} {
		const want = "batch/db-0\ndata/db-0\ndata/db-1\n:4\n"
		var got result
		for range 10 { // on a busy machine the plugin may answer too late for a completion
			if got = run(t, "", append([]string{"__complete"}, args...)...); got.out == want {
				break
			}
		}
		if got.out != want {
			t.Errorf("%s: %q, want %q", args[0], got.out, want)
		}
	}
}

func TestHostileErrors(t *testing.T) {
	t.Parallel()
	s := statustest.Calm()
	s.Containers = []status.Container{{Ref: "a/" + evil + "/c", ID: "1"}, {Ref: "b/" + evil + "/c", ID: "12"}}
	got := run(t, "", "explain", "1", "--status-socket", serve(t, plugin{status: s}))
	checkPrintable(t, "error", got.errs)
	if got.exit != exitFailure {
		t.Errorf("exit %d", got.exit)
	}
	manifest := "apiVersion: v1\nkind: Pod\nmetadata: {name: \"\\e[2Jowned\"}\nspec: {containers: [{name: \"\\e[2Jc\", resources: {requests: {cpu: 2}, limits: {cpu: 1}}}]}\n"
	checkPrintable(t, "plan", run(t, manifest, "plan", "-f", "-", "--machine", "4 cores").errs)
	manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: \"\\e[2Jowned\", annotations: {class.sluice.dev: \"\\e[2J\"}}\nspec: {containers: [{name: \"\\e[2Jc\"}]}\n"
	checkPrintable(t, "plan", run(t, manifest, "plan", "-f", "-", "--machine", "4 cores").out)
}
