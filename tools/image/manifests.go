package main

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
)

// manifests are the files from which krew and Homebrew install the archives with these checksums.
func (r release) manifests(root string, sums map[string]string) (map[string][]byte, error) {
	out := map[string][]byte{}
	for name, pattern := range map[string]string{krewName: ".krew.yaml", formulaName: "deploy/homebrew/dovetail.rb"} {
		text, err := os.ReadFile(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		if out[name], err = r.fill(string(text), sums); err != nil {
			return nil, fmt.Errorf("%s: %w", pattern, err)
		}
	}
	return out, nil
}

// Names of the filled manifests. Homebrew knows a formula by the name of its file.
const (
	krewName    = "dovetail.krew.yaml"
	formulaName = "dovetail.rb"
)

// fill fills the template of a manifest. addURIAndSha and TagName are those of krew-release-bot, which fills the manifest for krew's index;
// sha256 is the checksum of an archive, for others. An archive that is missing is an error.
func (r release) fill(pattern string, sums map[string]string) ([]byte, error) {
	tag := struct{ TagName, Version string }{r.version, r.tag()}
	sum := func(archive string) (string, error) {
		if sums[archive] == "" {
			return "", fmt.Errorf("there is no archive %s", archive)
		}
		return sums[archive], nil
	}
	add := func(address, _ string) (string, error) {
		url, err := template.New("url").Parse(address)
		if err != nil {
			return "", err
		}
		var filled strings.Builder
		if err := url.Execute(&filled, tag); err != nil {
			return "", err
		}
		found, err := sum(path.Base(filled.String()))
		return "uri: " + filled.String() + "\n    sha256: " + strconv.Quote(found), err
	}
	manifest, err := template.New("manifest").Funcs(template.FuncMap{"addURIAndSha": add, "sha256": sum}).Parse(pattern)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = manifest.Execute(&out, tag)
	return out.Bytes(), err
}
