//go:build tools

// Package tools pins actionlint, which checks workflow files: go.mod names its version, and nothing else does.
package tools

import _ "github.com/rhysd/actionlint/cmd/actionlint"
