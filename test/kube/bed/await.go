package bed

import (
	"errors"
	"testing"

	"github.com/sluice-dev/sluice/test/host"
)

// ErrNotYet is for conditions of Await that have nothing more to say.
var ErrNotYet = errors.New("not yet")

// Await waits until the condition holds, for as long as host.Timeout. Its error says
// what is missing.
func Await(t testing.TB, what string, condition func() error) {
	t.Helper()
	if err := host.Poll(what, condition); err != nil {
		t.Fatal(err)
	}
}
