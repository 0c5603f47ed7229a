package firstday

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/docs/markdown"
	"github.com/sluice-dev/sluice/test/kube/bed"
)

const root = "../../.." // of the repository

// page is a page of docs, whose commands a test runs in their order.
type page struct {
	*testing.T
	dir    string // the folder in which the commands run
	env    []string
	fill   *strings.Replacer // replaces what the reader replaces
	blocks []markdown.Block  // those that were not run yet
}

// open prepares a folder as the reader has it, with configs of the repository, and the programs.
func open(t *testing.T, name, kubeconfig string, replace ...string) *page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := markdown.Parse(name, string(text))
	if err != nil {
		t.Fatal(err)
	}
	bin, err := filepath.Abs(filepath.Join(root, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	p := &page{T: t, dir: t.TempDir(), fill: strings.NewReplacer(replace...), blocks: parsed.Blocks}
	if err := os.Symlink(filepath.Join(filepath.Dir(bin), "configs"), filepath.Join(p.dir, "configs")); err != nil {
		t.Fatal(err)
	}
	path := []string{bin, filepath.Join(bin, "tools"), filepath.Join(bin, "kube", bed.Version()), os.Getenv("PATH")}
	p.env = append(os.Environ(), "HOME="+p.dir, "KUBECONFIG="+kubeconfig, "PATH="+strings.Join(path, ":"))
	return p
}

// run runs the next block of commands, which begins with these words. It writes values.yaml where
// the page shows that before.
func (p *page) run(begins string) string {
	p.Helper()
	block := p.next(begins)
	cmd := exec.CommandContext(p.Context(), "bash", "-euo", "pipefail", "-c", p.fill.Replace(block.Text))
	cmd.Dir, cmd.Env = p.dir, p.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	out, err := cmd.CombinedOutput()
	p.Logf("line %d of the page, after %s:\n%s", block.Line, time.Since(began).Round(100*time.Millisecond), out)
	if err != nil {
		p.Fatal(err)
	}
	return string(out)
}

// next takes the next block of commands, which begins with these words.
func (p *page) next(begins string) markdown.Block {
	p.Helper()
	for len(p.blocks) > 0 && (p.blocks[0].Kind == "yaml values" || p.blocks[0].Kind == "text") {
		if p.blocks[0].Kind == "text" { // what the commands before print somewhere
			p.blocks = p.blocks[1:]
			continue
		}
		if err := os.WriteFile(filepath.Join(p.dir, "values.yaml"), []byte(p.fill.Replace(p.blocks[0].Text)), 0o600); err != nil {
			p.Fatal(err)
		}
		p.blocks = p.blocks[1:]
	}
	if len(p.blocks) == 0 || p.blocks[0].Kind != "sh cluster" || !strings.HasPrefix(p.blocks[0].Text, begins) {
		p.Fatalf("the page's next block is not one of commands that begins with %q: %+v", begins, p.blocks)
	}
	block := p.blocks[0]
	p.blocks = p.blocks[1:]
	return block
}

// says checks that a block's commands print these words, whatever spaces are between them.
func (p *page) says(out string, words ...string) {
	p.Helper()
	out = strings.Join(strings.Fields(out), " ")
	for _, want := range words {
		if !strings.Contains(out, want) {
			p.Errorf("the commands do not say %q", want)
		}
	}
}

// close reports blocks that no test has run.
func (p *page) close() {
	p.Helper()
	for _, block := range p.blocks {
		p.Errorf("line %d of the page has a block that was not run: %s", block.Line, block.Text)
	}
}
