#!/bin/bash
# share.sh BINARY DIR: writes what packages put into /usr/share: DIR/share has the manual
# pages and the completions of bash and fish, DIR/zsh the one of zsh, whose folder depends
# on the distribution.
set -euo pipefail
binary=$1 dir=$2
rm -rf "$dir"
mkdir -p "$dir"/{zsh,man} "$dir"/share/{bash-completion/completions,fish/vendor_completions.d,man/man8}
"$binary" completion bash >"$dir/share/bash-completion/completions/sluice"
"$binary" completion fish >"$dir/share/fish/vendor_completions.d/sluice.fish"
"$binary" completion zsh >"$dir/zsh/_sluice"
"$binary" man "$dir/man"
for page in "$dir"/man/*.8; do
	gzip -9nc "$page" >"$dir/share/man/man8/${page##*/}.gz"
done
