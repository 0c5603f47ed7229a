package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/status/statustest"
)

// everyCommand lists a command and all commands below it.
func everyCommand(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		all = append(all, everyCommand(sub)...)
	}
	return all
}

// A shell offers files unless a flag completes something else, so each flag with a value says what
// it completes: words, files or folders.
func TestEveryFlagCompletes(t *testing.T) {
	t.Parallel()
	for _, c := range everyCommand(newRoot()) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			_, words := c.GetFlagCompletionFunc(f.Name)
			_, files := f.Annotations[cobra.BashCompFilenameExt]
			_, folders := f.Annotations[cobra.BashCompSubdirsInDir]
			if f.Value.Type() != "bool" && !words && !files && !folders {
				t.Errorf("%s --%s completes nothing", c.CommandPath(), f.Name)
			}
		})
	}
}

func TestCompletions(t *testing.T) {
	t.Parallel()
	s := statustest.Calm()
	s.Containers = append(s.Containers, status.Container{Ref: "data/$(reboot)/main"})
	socket := serve(t, plugin{status: s})
	for line, want := range map[string]string{
		"explain --status-socket " + socket + " data/":           "data/db-0 data/db-1",
		"explain --status-socket " + socket + " data/db-0/":      "data/db-0/main data/db-0/proxy",
		"explain --status-socket " + socket + " data/db-0 data/": "",
		"explain --status-socket /nonexistent d":                 "",
		"log --status-socket " + socket + " --pod b":             "batch/db-0",
		"log --controller ev":                                    strings.Join(controllers(), " "),
		"status st":                                              "",
		"status -o w":                                            "table wide json",
		"top --sort m":                                           "cpu throttled memory",
		"batch o":                                                "on off",
		"sim --policy s":                                         "unmanaged static suppression koordinator lar pools forecast",
		"run --log-level d":                                      "debug info warn error",
	} {
		got := run(t, "", append([]string{"__complete"}, strings.Fields(line)...)...)
		var words []string
		for word := range strings.Lines(got.out) {
			if word = strings.TrimSpace(word); !strings.HasPrefix(word, ":") {
				words = append(words, word)
			}
		}
		if text := strings.Join(words, " "); text != want {
			t.Errorf("%s: %q, want %q", line, text, want)
		}
	}
}

// A shell doesn't wait for a plugin that hangs.
func TestCompletionGivesUp(t *testing.T) {
	t.Parallel()
	hangs := make(chan struct{})
	socket := serve(t, stuck{plugin{status: statustest.Calm()}, hangs})
	begun := time.Now()
	if got := completePods(socket, ""); got != nil {
		t.Errorf("%q", got)
	}
	if lasted := time.Since(begun); lasted < completionTime {
		t.Errorf("it gave up after %v", lasted)
	}
	close(hangs)
}

type stuck struct {
	plugin
	until chan struct{}
}

func (s stuck) Status() (*status.Status, error) {
	<-s.until
	return s.plugin.Status()
}

func TestShellsAreServed(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if got := run(t, "", "completion", shell); got.exit != 0 || !strings.Contains(got.out, "sluice") {
			t.Errorf("%s: %+v", shell, got)
		}
	}
}

func TestMan(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1800000000")
	dir := filepath.Join(t.TempDir(), "man")
	if got := run(t, "", "man", dir); got.exit != 0 || got.out != "" {
		t.Fatalf("%+v", got)
	}
	for _, c := range everyCommand(newRoot()) {
		if c.Hidden {
			continue
		}
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".8"
		page, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, part := range []string{".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION"} {
			if !strings.Contains(string(page), part) {
				t.Errorf("%s has no %s", name, part)
			}
		}
		if c.Runnable() && !strings.Contains(string(page), ".SH EXAMPLE") {
			t.Errorf("%s has no example", name)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "sluice-top.8"))
	if err != nil || !slices.Contains(strings.Fields(string(page)), `"Jan`) || !strings.Contains(string(page), `2027`) {
		t.Errorf("%v: the date is not SOURCE_DATE_EPOCH's: %.100s", err, page)
	}
}
