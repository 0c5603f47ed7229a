package vm

import (
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path"
	"strings"
	"testing"
	"time"
)

// event is one of the events of `go doc test2json`.
type event struct {
	Action, Test, Output string
}

// events reads the events of the guest's tests while they run. The tests run one after the other,
// so an event belongs to the last started test.
type events struct {
	decoder *json.Decoder
	began   time.Time // of the first test; zero if none ran
	ran     []string  // names of the tests in the guest
	passed  bool      // the whole run passed
}

// convert starts `go tool test2json` on the output of tests.
func convert(output io.Reader) (*events, *exec.Cmd, error) {
	cmd := exec.Command("go", "tool", "test2json")
	cmd.Stdin = output
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	return &events{decoder: json.NewDecoder(out)}, cmd, cmd.Start()
}

// replay makes the guest's tests below the named one, or all for "", subtests of t.
func (e *events) replay(t *testing.T, name string) {
	for {
		var next event
		if err := e.decoder.Decode(&next); err != nil {
			if err != io.EOF {
				t.Errorf("reading the events of the guest's tests: %v", err)
			}
			if name != "" {
				t.Error("the guest ended before this test did")
			}
			return
		}
		switch next.Action {
		case "run":
			if e.began.IsZero() {
				e.began = time.Now()
			}
			e.ran = append(e.ran, next.Test)
			t.Run(path.Base(next.Test), func(t *testing.T) { e.replay(t, next.Test) })
		case "output":
			if !framing(next.Output) {
				_, _ = fmt.Fprint(t.Output(), strings.TrimRight(next.Output, "\r\n")+"\n")
			}
		case "pass", "fail", "skip":
			switch {
			case next.Test == "":
				e.passed = next.Action == "pass"
			case next.Action == "fail":
				t.Fail()
			case next.Action == "skip":
				t.SkipNow()
			}
			if next.Test == name {
				return
			}
		}
	}
}

// framing reports whether a line is one of the testing package's, which go test prints by itself.
func framing(line string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") || line == "PASS" || line == "FAIL"
}
