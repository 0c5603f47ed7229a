package docs

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload/annotation"
)

var update = flag.Bool("update", false, "write docs/commands.md, and the keys of docs/config.md, anew")

// helps reads the help of every command below one, by its words after "sluice".
func helps(program, words string) (map[string]string, error) {
	all := map[string]string{}
	out, errs, err := shell(program+` __complete `+words+` ""`, "")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, errs)
	}
	for line := range strings.Lines(out) {
		name, _, isCommand := strings.Cut(line, "\t")
		if !isCommand || strings.HasPrefix(name, "-") { // a required flag
			continue
		}
		path := strings.TrimSpace(words + " " + name)
		if all[path], errs, err = shell(program+" "+path+" --help", ""); err != nil {
			return nil, fmt.Errorf("%s %s --help: %w: %s", program, path, err, errs)
		}
		if name == "help" { // help accepts every command's name
			continue
		}
		below, err := helps(program, path)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, below)
	}
	return all, nil
}

// checkLine checks each sluice command in a line of a shell.
func checkLine(t *testing.T, line string) {
	t.Helper()
	line, _, _ = strings.Cut(line, " #")
	for _, part := range regexp.MustCompile(`\|\|?|&&|;|\$\(|\)`).Split(line, -1) {
		words := strings.Fields(part)
		for len(words) > 0 && slices.Contains([]string{"if", "then", "sudo", "!"}, words[0]) {
			words = words[1:]
		}
		switch {
		case len(words) < 2:
		case filepath.Base(words[0]) == "sluice":
			checkCommand(t, commands, words)
		case filepath.Base(words[0]) == "sluice-kube":
			checkCommand(t, kubeCommands, words)
		case words[0] == "kubectl" && words[1] == "sluice" && len(words) > 2:
			checkCommand(t, kubectlCommands, words[1:])
		}
	}
}

// checkCommand checks the words after the program's name: the command and its flags.
func checkCommand(t *testing.T, commands map[string]string, words []string) {
	t.Helper()
	program, words := filepath.Base(words[0]), words[1:]
	path := ""
	for _, word := range words {
		longer := strings.TrimSpace(path + " " + word)
		if _, ok := commands[longer]; !ok {
			break
		}
		path = longer
	}
	if path == "" && !strings.HasPrefix(words[0], "-") {
		t.Errorf("%s has no command %q", program, words[0])
		return
	}
	for _, word := range words {
		if name := regexp.MustCompile(`^--?[a-z-]+`).FindString(word); name != "" && !regexp.MustCompile(`(?m)^ +(-\w, )?`+name+`\b`).MatchString(commands[path]) {
			t.Errorf("%s %s has no flag %s", program, path, name)
		}
	}
}

// Every flag and command of sluice that the documentation names exists.
func TestFlagsAndCommands(t *testing.T) {
	t.Parallel()
	help := strings.Join(slices.Concat(slices.Collect(maps.Values(commands)), slices.Collect(maps.Values(kubeCommands)), slices.Collect(maps.Values(kubectlCommands))), "\n")
	named := regexp.MustCompile("(?:^|[\\s`(])(--[a-z][a-z-]+)")
	others := regexp.MustCompile("(?m)^(?:curl|helm|kubectl) .*$") // have flags of their own
	found := 0
	for _, p := range pages(t) {
		for _, m := range named.FindAllStringSubmatch(others.ReplaceAllString(p.Text, ""), -1) {
			found++
			if !strings.Contains(help, m[1]+" ") {
				t.Errorf("%s: no command has the flag %s", p.Name, m[1])
			}
		}
		for _, code := range p.Code() {
			if strings.HasPrefix(code, "sluice ") || strings.HasPrefix(code, "sluice-kube ") || strings.HasPrefix(code, "kubectl sluice ") {
				checkLine(t, code)
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d flags found", found)
	}
}

// What --help shows as examples are commands that exist, with flags that exist.
func TestExamplesOfHelp(t *testing.T) {
	t.Parallel()
	all := maps.Clone(commands)
	for path, help := range kubeCommands {
		all[path+" of sluice-kube"] = help
	}
	for path, help := range kubectlCommands {
		all[path+" of kubectl sluice"] = help
	}
	for path, help := range all {
		_, rest, _ := strings.Cut(help, "\nExamples:\n")
		examples, _, _ := strings.Cut(rest, "\n\n")
		for line := range strings.Lines(examples) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "sluice") || strings.HasPrefix(line, "kubectl sluice") {
				checkLine(t, line)
			}
		}
		if first, _, _ := strings.Cut(path, " "); examples == "" && !slices.Contains([]string{"completion", "help", "version"}, first) {
			t.Errorf("sluice %s has no examples", path)
		}
	}
}

// No command stands where the checks of blocks don't see it.
func TestCommandsAreInBlocks(t *testing.T) {
	t.Parallel()
	hidden := regexp.MustCompile("(?m)^\\s*(~~~|<pre|<code|[ \\t]+```)|^(?: {4,}|\\t)(?:\\$ )?(?:sudo )?(?:sluice|make|kubectl|systemctl|docker|go|apt-get) .*$")
	for _, p := range pages(t) {
		for _, line := range hidden.FindAllString(p.Prose, -1) {
			t.Errorf("%s: %q is code that no test sees; put it into a fenced block at the beginning of the line", p.Name, line)
		}
	}
}

// The parser knows every annotation that a page or a file of configs names, except for those that
// are shown as refused.
func TestAnnotationsAreKnown(t *testing.T) {
	t.Parallel()
	texts := map[string]string{}
	for _, p := range pages(t) {
		texts[p.Name] = p.Prose
		for _, b := range p.Blocks {
			if b.Kind == "yaml" {
				texts[fmt.Sprintf("%s:%d", p.Name, b.Line)] = b.Text
			}
		}
	}
	for _, pattern := range []string{"*", "*/*", "*/*/*"} {
		names, err := filepath.Glob(filepath.Join(root, "configs", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
				texts[name] = string(read(t, strings.TrimPrefix(name, root+"/")))
			}
		}
	}
	found := 0
	for name, text := range texts {
		for _, m := range regexp.MustCompile(`(?:OutOf)?([\w.-]+)\.sluice\.dev(?:/([\w-]+))?`).FindAllStringSubmatch(text, -1) {
			found++
			if offer := strings.TrimPrefix(m[1], "requests."); (offer == "batch" || offer == "mid") && (m[2] == "cpu" || m[2] == "memory") {
				continue // an extended resource, or a quota of one
			}
			if m[1] == "lse.cpus" || m[1] == "lsr.cpus" {
				continue // a device class
			}
			if m[1] == "feature" {
				continue // a label of nodes
			}
			if !slices.Contains(annotation.Keys(), m[1]) || m[2] != "" && m[2] != "pod" && m[2] != "container" {
				t.Errorf("%s: %s is no annotation that Sluice reads", name, m[0])
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d annotations found", found)
	}
}

// docs/commands.md has every command with every flag, as in --help.
func TestCommandsPage(t *testing.T) {
	t.Parallel()
	const name = "docs/commands.md"
	want := commandsPage()
	if *update {
		if err := os.WriteFile(filepath.Join(root, name), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got := string(read(t, name)); got != want {
		t.Errorf("%s differs from --help; write it anew with: go test ./test/docs -run TestCommandsPage -update", name)
	}
}

func commandsPage() string {
	var out strings.Builder
	out.WriteString("# Commands\n\nEvery command and flag, generated from `--help`, which also has examples. Every command\naccepts `-h` and `--help`.\n")
	for _, path := range slices.Sorted(maps.Keys(commands)) {
		writeCommand(&out, "sluice "+path, commands[path])
	}
	for _, path := range slices.Sorted(maps.Keys(kubeCommands)) {
		writeCommand(&out, "sluice-kube "+path, kubeCommands[path])
	}
	for _, path := range slices.Sorted(maps.Keys(kubectlCommands)) {
		writeCommand(&out, "kubectl sluice "+path, kubectlCommands[path])
	}
	return out.String()
}

// writeCommand writes a command's section.
func writeCommand(out *strings.Builder, command, help string) {
	words := strings.Fields(strings.TrimPrefix(command, "kubectl "))
	if words[1] == "help" || words[1] == "completion" && !strings.HasPrefix(command, "sluice ") {
		return
	}
	what, rest, _ := strings.Cut(help, "\nUsage:\n")
	usage, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	what, _, _ = strings.Cut(what, "\n\n")
	fmt.Fprintf(out, "\n## %s\n\n`%s`\n\n%s\n", command, strings.TrimSpace(usage), strings.TrimSpace(what))
	flags := regexp.MustCompile(`(?m)^ +(?:(-\w), )?(--[\w-]+)(?: ([^\s]+))?\s{2,}(.+)$`)
	rows := flags.FindAllStringSubmatch(help, -1)
	rows = slices.DeleteFunc(rows, func(row []string) bool { return row[2] == "--help" })
	if len(rows) == 0 {
		return
	}
	out.WriteString("\n| flag | meaning |\n|---|---|\n")
	for _, row := range rows {
		span := row[2]
		if row[3] != "" {
			span += " " + row[3]
		}
		if row[1] != "" {
			span = row[1] + ", " + span
		}
		fmt.Fprintf(out, "| `%s` | %s |\n", bars(span), bars(row[4]))
	}
}

// bars lets text with bars stand in a table.
func bars(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
