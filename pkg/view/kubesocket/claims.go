package kubesocket

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/sluice-dev/sluice/pkg/workload/claim"
)

// Claims reserves CPUs for resource claims; see pkg/engine/claims.
type Claims interface {
	Prepare(c *claim.Claim) error
	End(uid string) error
}

// handleClaims serves the claims. A claim that can't be reserved now is answered with 409.
func handleClaims(mux *http.ServeMux, claims Claims) {
	mux.HandleFunc("PUT "+ClaimsPath+"/{uid}", func(w http.ResponseWriter, r *http.Request) {
		body, ok := read(w, r, claim.MaxMessage)
		if !ok {
			return
		}
		c, err := claim.Decode(body)
		if err == nil && c.UID != r.PathValue("uid") {
			err = fmt.Errorf("%s: its uid %s is not that of the path", c.Ref(), c.UID)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := claims.Prepare(c); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})
	mux.HandleFunc("DELETE "+ClaimsPath+"/{uid}", func(w http.ResponseWriter, r *http.Request) {
		uid := r.PathValue("uid")
		if !claim.IsUID(uid) {
			http.Error(w, fmt.Sprintf("claim %.80q: this is no UID", uid), http.StatusBadRequest)
			return
		}
		if err := claims.End(uid); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})
}

// PrepareClaim lets the plugin reserve what a claim asks for. The error is the plugin's own sentence.
func (c *Client) PrepareClaim(ctx context.Context, what *claim.Claim) error {
	return c.send(ctx, http.MethodPut, ClaimsPath+"/"+what.UID, what)
}

// EndClaim lets the plugin free what a claim has reserved.
func (c *Client) EndClaim(ctx context.Context, uid string) error {
	return c.send(ctx, http.MethodDelete, ClaimsPath+"/"+uid, json.RawMessage("{}"))
}
