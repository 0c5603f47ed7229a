package newidle

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// machine returns a root folder whose kernel lists these features.
func machine(t *testing.T, features string) (*Host, string) {
	t.Helper()
	root := t.TempDir()
	file := filepath.Join(root, File)
	if features != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(features), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h, file
}

func TestRead(t *testing.T) {
	t.Parallel()
	for features, want := range map[string]Search{
		"PLACE_LAG NI_RANDOM NO_HRTICK \n":        Sometimes,
		"PLACE_LAG NO_NI_RANDOM NO_HRTICK \n":     Always,
		"NI_RANDOM NI_RATE \n":                    Rated,
		"NI_RANDOM NO_NI_RATE \n":                 Sometimes,
		"NO_NI_RANDOM NI_RATE \n":                 Always,
		"PLACE_LAG START_DEBIT NO_OMNI_RANDOM \n": Plain,
	} {
		h, _ := machine(t, features)
		if got, err := h.Read(); got != want || err != nil {
			t.Errorf("%q: %s, %v, want %s", features, got, err, want)
		}
	}
}

func TestSetAlways(t *testing.T) {
	t.Parallel()
	for always, want := range map[bool]string{true: "NO_NI_RANDOM", false: "NI_RANDOM"} {
		h, file := machine(t, strings.Repeat(" ", len(want))) // a plain file keeps what is not overwritten
		if err := h.SetAlways(always); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); string(got) != want || err != nil {
			t.Errorf("always %v writes %q, %v", always, got, err)
		}
	}
}

func TestWhyNot(t *testing.T) {
	t.Parallel()
	h, _ := machine(t, "")
	if _, err := h.Read(); err == nil || !strings.Contains(err.Error(), "mount -t debugfs") {
		t.Errorf("without debugfs: %v", err)
	}
	if err := h.SetAlways(true); err == nil || !strings.Contains(err.Error(), "mount -t debugfs") {
		t.Errorf("without debugfs: %v", err)
	}
	if err := explain(&os.PathError{Op: "open", Path: File, Err: os.ErrPermission}); !strings.Contains(err.Error(), "lockdown=none") {
		t.Errorf("locked down: %v", err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("a root folder that is not there is opened")
	}
}
