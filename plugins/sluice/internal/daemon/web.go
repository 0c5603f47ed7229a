package daemon

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/pkg/view/web"
)

// serveWeb serves the node map until the context ends. If it fails, the plugin continues
// without it.
func serveWeb(ctx context.Context, cfg *config.Web, source statusapi.Reader, log logrus.FieldLogger) {
	token, err := webToken(cfg)
	if err == nil {
		if cfg.Plain() {
			log.Warnf("The node map on %s goes over the network unencrypted, its token too: web.tls encrypts it", cfg.Listen)
		}
		err = web.Serve(ctx, web.Options{Listen: cfg.Listen, Token: token, Cert: cfg.TLS.Cert, Key: cfg.TLS.Key}, source)
	}
	if err != nil {
		log.WithError(err).Error("No node map")
	}
}

func webToken(cfg *config.Web) (string, error) {
	if cfg.TokenFile == "" {
		return cfg.Token, nil
	}
	data, err := os.ReadFile(cfg.TokenFile)
	if err != nil {
		return "", fmt.Errorf("web.tokenFile: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if why := config.BadWebToken(token); why != "" {
		return "", fmt.Errorf("web.tokenFile %s: a token %s", cfg.TokenFile, why)
	}
	return token, nil
}
