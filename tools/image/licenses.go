package main

import (
	"bufio"
	"context"
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// component is a part of the image: a module, or data.
type component struct {
	name, version string
	sum           string // of a module: h1 of go.sum
	location      string // where it is available; of a module its proxy, if empty
	license       string // SPDX expression
	comment       string
	texts         map[string][]byte // of licenses and notices, by file name
}

// publicDomain is the license expression of the time zones, which no ID of SPDX covers.
const publicDomain = "LicenseRef-IANA-public-domain"

// allowed are the licenses that parts of the image may have. A new one needs a decision: does the image keep its conditions?
var allowed = map[string]bool{
	"Apache-2.0": true, "BSD-2-Clause": true, "BSD-3-Clause": true, "ISC": true, "MIT": true, "MPL-2.0": true,
	publicDomain: true,
}

// Names of files with the texts of licenses, and with notices that must accompany them.
var (
	licenseName = regexp.MustCompile(`(?i)^(licen[cs]e|copying)([-._].*)?$`)
	noticeName  = regexp.MustCompile(`(?i)^(notice|patents|authors|contributors)([-._].*)?$`)
	// Source code about licenses, and the license of documentation, which the image does not contain.
	otherName = regexp.MustCompile(`(?i)\.(go|sh|html|json|ya?ml|docs)$`)
)

// minCoverage is the percentage of words of a license file that must match known licenses: what remains is copyright lines and
// titles. The lowest of our modules is printed by TestLicensesOfTheBinary.
const minCoverage = 75

// licenseIDs are the licenses that a text contains.
func licenseIDs(text []byte) ([]string, error) {
	found := licensecheck.Scan(text)
	if found.Percent < minCoverage {
		return nil, fmt.Errorf("only %.0f%% of its text is known", found.Percent)
	}
	var out []string
	for _, match := range found.Match {
		if !match.IsURL {
			out = append(out, match.ID)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// scan adds the licenses and notices of a directory to a component. Names are relative to the root of the module.
func (c *component) scan(root, dir string, ids map[string]bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		isLicense := licenseName.MatchString(name)
		if entry.IsDir() || otherName.MatchString(name) || !isLicense && !noticeName.MatchString(name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, filepath.Join(dir, name))
		if err != nil {
			return err
		}
		c.texts[filepath.ToSlash(relative)] = text
		if !isLicense {
			continue
		}
		found, err := licenseIDs(text)
		if err != nil {
			return fmt.Errorf("license of %s: %s: %w", c.name, relative, err)
		}
		for _, id := range found {
			ids[id] = true
		}
	}
	return nil
}

// read fills license and texts from the directories of the module in its root, and from all between them.
func (c *component) read(root string, dirs []string) error {
	c.texts = map[string][]byte{}
	ids, seen := map[string]bool{}, map[string]bool{}
	for _, dir := range append([]string{root}, dirs...) {
		for ; len(dir) >= len(root) && !seen[dir]; dir = filepath.Dir(dir) {
			seen[dir] = true
			if err := c.scan(root, dir, ids); err != nil {
				return err
			}
		}
	}
	if len(ids) == 0 {
		return fmt.Errorf("module %s has no license", c.name)
	}
	for id := range ids {
		if !allowed[id] {
			return fmt.Errorf("module %s has license %s: decide whether a release may contain it, and extend the list", c.name, id)
		}
	}
	c.license = allOf(slices.Collect(maps.Keys(ids)))
	return nil
}

// allOf is the expression for several licenses that all apply.
func allOf(ids []string) string {
	slices.Sort(ids)
	return strings.Join(slices.Compact(ids), " AND ")
}

// modulePackages are the directories of the packages that a binary is compiled from.
type modulePackages struct {
	root string
	dirs []string
}

// packages are the modules of the program's packages for a platform, by path.
func (t target) packages(ctx context.Context) (map[string]modulePackages, error) {
	const format = "{{with .Module}}{{.Path}}\t{{.Dir}}\t{{$.Dir}}{{end}}"
	list, err := output(ctx, t.source, t.environ(), "go", "list", "-deps", "-f", format, t.program.source)
	if err != nil {
		return nil, fmt.Errorf("list the packages of the binary: %w", err)
	}
	out := map[string]modulePackages{}
	for lines := bufio.NewScanner(strings.NewReader(list)); lines.Scan(); {
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) != 3 {
			continue // a package of the standard library
		}
		m := out[fields[0]]
		m.root, m.dirs = fields[1], append(m.dirs, fields[2])
		out[fields[0]] = m
	}
	return out, nil
}

// linked are the program, all modules of its binary and the standard library, with their licenses. The first is the program.
func (t target) linked(ctx context.Context, binary, goroot string) ([]component, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	packages, err := t.packages(ctx)
	if err != nil {
		return nil, err
	}
	out := []component{t.own(info.Main.Path)}
	for _, dep := range info.Deps {
		c, err := t.dependency(dep)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	for i := range out {
		m, ok := packages[out[i].name]
		if !ok {
			return nil, fmt.Errorf("module %s is in the binary, but go list has no package of it", out[i].name)
		}
		if strings.HasPrefix(out[i].name, ownModule) {
			m.root = t.source // all modules of the repository have its license
		}
		if err := out[i].read(m.root, m.dirs); err != nil {
			return nil, err
		}
	}
	library, err := goComponent(goroot, runtime.Version())
	return append(out, library), err
}

// own is a module of this repository.
func (t target) own(path string) component {
	return component{name: path, version: t.version, location: "git+" + sourceURL + "@" + t.revision}
}

// ownModule is the path of the module of the product. Those of the repository's other modules begin with it.
const ownModule = "github.com/dovetail-k8s/dovetail"

// dependency is a module that is linked. One that is replaced by anything but another version of itself is an error: a release is built
// from published modules.
func (t target) dependency(dep *debug.Module) (component, error) {
	if dep.Path == ownModule {
		return t.own(dep.Path), nil
	}
	from := dep
	if dep.Replace != nil {
		from = dep.Replace
	}
	if from.Path != dep.Path {
		return component{}, fmt.Errorf("module %s is replaced by %s: a release is built from published modules", dep.Path, from.Path)
	}
	return component{name: dep.Path, version: from.Version, sum: from.Sum}, nil
}

// goComponent is the standard library.
func goComponent(goroot, version string) (component, error) {
	out := component{name: "stdlib", version: strings.TrimPrefix(version, "go"), location: "https://go.dev/dl/" + version + ".src.tar.gz"}
	return out, out.read(goroot, nil)
}

// certificatesModule has the root certificates.
const certificatesModule = "golang.org/x/crypto/x509roots/fallback"

// certificatesNotice names the license of the certificates themselves; the module's own is that of its code.
const certificatesNotice = `The certificates are from the root store of Mozilla's NSS, under the Mozilla Public License 2.0:
https://mozilla.org/MPL/2.0/. Their source is https://hg.mozilla.org/projects/nss/file/tip/lib/ckfw/builtins/certdata.txt.
`

// certificatesComponent describes the root certificates, which are compiled into this program.
func certificatesComponent(ctx context.Context, root string) (component, error) {
	const format = "{{.Version}} {{.Sum}} {{.Dir}}"
	tool := filepath.Join(root, "tools", "image")
	found, err := output(ctx, tool, append(os.Environ(), "GOWORK=off"), "go", "list", "-m", "-f", format, certificatesModule)
	if err != nil {
		return component{}, err
	}
	fields := strings.SplitN(found, " ", 3)
	out, dir := component{name: certificatesModule, version: fields[0], sum: fields[1]}, fields[2]
	if err := out.read(dir, nil); err != nil {
		return component{}, err
	}
	out.license, out.comment = allOf([]string{out.license, "MPL-2.0"}), certificatesNotice
	out.texts["NOTICE.certificates"] = []byte(certificatesNotice)
	return out, nil
}

// licenseTree is the texts of all licenses as files of the image.
func licenseTree(components []component) tree {
	out := tree{}
	for _, c := range components {
		for name, text := range c.texts {
			out[licensesPath+"/"+c.name+"/"+name] = file{content: text}
		}
	}
	return out
}
