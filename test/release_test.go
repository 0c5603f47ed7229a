package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A release fails before anything is built unless the commit is clean and has the tag.
func TestReleaseRefuses(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("../configs/package/release.sh")
	if err != nil {
		t.Fatal(err)
	}
	repository := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgSign=false", "-c", "tag.gpgSign=false"}, args...)...)
		cmd.Dir = repository
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	release := func(version, want string) {
		t.Helper()
		cmd := exec.Command(script, version, "out")
		cmd.Dir = repository
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("release of %q: %v, %q; want an error with %q", version, err, out, want)
		}
		if _, err := os.Stat(filepath.Join(repository, "out")); err == nil {
			t.Errorf("release of %q has begun to build", version)
		}
	}
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "first")
	git("tag", "v0.1.0")
	git("commit", "-q", "--allow-empty", "-m", "second")
	for _, version := range []string{"", "0.2.0", "v1", "v1.2.3/../x", "latest"} {
		release(version, "name the tag of this commit")
	}
	release("v0.2.0", "no tag v0.2.0")
	release("v0.1.0", "no tag v0.1.0") // the tag is on another commit
	git("tag", "v0.2.0")
	if err := os.WriteFile(filepath.Join(repository, "forgotten.go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	release("v0.2.0", "has changes that no commit has")
}
