package bed

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

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

// Gone tells why an object isn't gone, from the error of a request for it; nil where it is.
func Gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return errors.Join(err, ErrNotYet)
}
