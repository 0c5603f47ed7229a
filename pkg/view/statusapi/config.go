package statusapi

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/sluice-dev/sluice/pkg/status"
)

// maxConfig limits the size of a configuration: the shipped one with all its comments has 20
// KiB.
const maxConfig = 1 << 20

// ConfigRoute answers what a new configuration, whose text is the body, would change.
func ConfigRoute(compare func(text []byte) (*status.ConfigDiff, error)) Route {
	return Route{Pattern: "POST /v1/config", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxConfig))
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			http.Error(w, "a configuration is a text of at most 1 MiB", http.StatusRequestEntityTooLarge)
			return
		}
		if err != nil {
			return // the client has disconnected
		}
		diff, err := compare(text)
		answer(w, diff, err)
	})}
}

// ConfigDiff returns what a configuration would change on the node.
func (c *Client) ConfigDiff(ctx context.Context, text []byte) (*status.ConfigDiff, error) {
	var d status.ConfigDiff
	return &d, c.do(ctx, http.MethodPost, "/v1/config", text, &d)
}
