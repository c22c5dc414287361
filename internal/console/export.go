package console

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/inspect/podreport"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/top"
)

// ExportInfo is what an export holds.
type ExportInfo struct {
	// Passes counts the recorded times that can be shown, Packs the files of answers.
	Passes, Packs int
	// Bytes is the size of all files.
	Bytes int64
}

const (
	// exportData is the directory of the answers, beside the page. The page finds it in its own head.
	exportData = "data"
	// explainedApart sets how old the explanations of an exported time may be if nothing has changed since: they depend on the time, too.
	explainedApart = 10 * time.Minute
	// exportPatience sets how long an export waits for the assessment.
	exportPatience = time.Hour
)

// pack is a file of answers, by the path that the page requests.
type pack map[string]any

// moment is a recorded pass, and the pack with the fleet as the pass saw it.
type moment struct {
	At   time.Time `json:"at"`
	Pass string    `json:"pass"`
	Pack int       `json:"pack"`
}

// exporter writes a recording as files.
type exporter struct {
	console *Console
	dir     string
	info    ExportInfo
	moments []moment
	// spend has the prices of the last pass that had any.
	spend recordedSpend
	// last is the fleet of the last pack, explained the time of its explanations.
	last      []byte
	explained time.Time
	decided   map[string]bool // by ID of the pass
}

// Export writes the page of a recording into a directory, with the answers to all of its requests: any file server can then show it, below
// any path. Equal recordings give equal files. The fleet and the pending pods are exported for each pass, explanations for each pass that
// has decided something or has seen another fleet than the one before, and at least every ten minutes.
func (c *Console) Export(ctx context.Context, dir string) (ExportInfo, error) {
	if !c.Recorded {
		return ExportInfo{}, errors.New("only a recording without a cluster can be exported")
	}
	if s, _ := c.hub.current(); s.Nodes == nil {
		c.Watch(ctx, c.hub.receive)
	}
	e := exporter{console: c, dir: dir, spend: recordedSpend{now: c.Now}, decided: map[string]bool{}}
	opened, err := c.Sources.Decisions()
	if err != nil {
		return e.info, err
	}
	defer opened.Close() // nothing was written
	for _, step := range []func() error{
		e.page,
		func() error { return e.past(opened) },
		func() error { return e.present(ctx, opened) },
	} {
		if err := errors.Join(ctx.Err(), step()); err != nil {
			return e.info, fmt.Errorf("export: %w", err)
		}
	}
	return e.info, nil
}

// page writes the page, with a head that states where the answers are, and the policy that the server sends as a header.
func (e *exporter) page() error {
	head := fmt.Sprintf(`<meta name="dovetail-export" content="%s/">
<meta http-equiv="Content-Security-Policy" content="%s">
</head>`, exportData, strings.Replace(policy, "; frame-ancestors 'none'", "", 1)) // a page cannot state who may frame it
	assets, err := fs.Sub(embedded, "assets")
	if err != nil {
		return err
	}
	return fs.WalkDir(assets, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(assets, path)
		if err != nil {
			return err
		}
		if path == "index.html" {
			data = bytes.Replace(data, []byte("</head>"), []byte(head), 1)
		}
		return e.write(path, data)
	})
}

func (e *exporter) write(path string, data []byte) error {
	file := filepath.Join(e.dir, filepath.FromSlash(path))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	e.info.Bytes += int64(len(data))
	return os.WriteFile(file, data, 0o644)
}

// add writes a pack. Its name is not that of a compressed file: some servers would decompress it on the way.
func (e *exporter) add(name string, p pack) error {
	var out bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := errors.Join(json.NewEncoder(compressed).Encode(p), compressed.Close()); err != nil {
		return err
	}
	e.info.Packs++
	return e.write(exportData+"/"+name+".pack", out.Bytes())
}

// past exports the passes of the last day, as Timeline does.
func (e *exporter) past(recording *recorder.Recording) error {
	_, last, ok := recording.Span()
	if !ok {
		return errors.New("the recording is empty")
	}
	decisions, _ := recording.Decisions(recorder.Selection{Brief: true})
	for i := range decisions {
		e.decided[decisions[i].Pass] = true
	}
	return recording.Passes(recorder.Range{From: last.Add(-spendMinutes * time.Minute)}, e.pass)
}

func (e *exporter) pass(p *recorder.PassRecord) error {
	e.spend.prices = e.spend.pricesOf(p)
	seen := pastOf(p, e.spend.prices, p.Facts.Now)
	// What is of the time of the pass comes from its moment.
	seen.Asked, seen.Seen, seen.Pass, seen.Fleet.At, seen.Pending.At = time.Time{}, time.Time{}, "", time.Time{}, time.Time{}
	data, err := json.Marshal(seen)
	if err != nil {
		return err
	}
	if !bytes.Equal(data, e.last) || e.decided[p.ID] || p.Facts.Now.Sub(e.explained) >= explainedApart {
		e.last, e.explained = data, p.Facts.Now
		answers := explanations(&planned{View: recordedView(p, e.console.Search)})
		answers["/past"] = json.RawMessage(data)
		if err := e.add(fmt.Sprint(e.info.Packs), answers); err != nil {
			return err
		}
	}
	e.info.Passes++
	e.moments = append(e.moments, moment{At: p.Facts.Now.UTC(), Pass: p.ID, Pack: e.info.Packs - 1})
	return nil
}

// explanations are the answers about each object of a View, by path.
func explanations(v *planned) pack {
	out := pack{"/nodepools": v.nodePools()}
	add := func(found any, err error, path ...string) {
		if err != nil {
			found = problemOf(err)
		}
		for i := range path {
			path[i] = url.PathEscape(path[i])
		}
		out["/"+strings.Join(path, "/")+"/explain"] = found
	}
	for _, pool := range v.nodePools().Names {
		found, err := v.nodePool(pool)
		add(found, err, "nodepools", pool)
	}
	for _, n := range v.Nodes {
		found, err := v.node(n.Name)
		add(found, err, "nodes", n.Name)
	}
	for _, claim := range v.NodeClaims {
		if claim.Status.NodeName == "" {
			found, err := v.node(claim.Name)
			add(found, err, "nodes", claim.Name)
		}
	}
	for _, claim := range v.NodeClaims {
		if found, err := claimReport(v.View, claim.Name); err == nil { // it is one of the View
			out["/nodeclaims/"+url.PathEscape(claim.Name)] = found
		}
	}
	for _, p := range v.Pods {
		found, err := podreport.Explain(v.View, types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
		add(found, err, "pods", p.Namespace, p.Name)
	}
	return out
}

// present exports what is shown without a time: the end of the recording, and its decisions.
func (e *exporter) present(ctx context.Context, recording *recorder.Recording) error {
	c := e.console
	view, err := c.View(ctx)
	if err != nil {
		return err
	}
	out := explanations(&planned{View: view})
	s, _ := c.hub.current()
	out["/moments"], out["/search"] = e.moments, allFound(s.observed.Fleet)
	out["/costs"] = s.allCosts()
	out["/pending"], out["/pending/names"] = s.allPending()
	ids := make([]string, 0, len(s.Nodes))
	for i := range s.Nodes {
		ids = append(ids, s.Nodes[i].ID)
	}
	asked := map[string]string{"/pods": "/pods?node=" + url.QueryEscape(strings.Join(ids, ","))}
	for _, path := range []string{"/about", "/clusters", "/fleet", "/decisions"} {
		asked[path] = path
	}
	decisions, _ := recording.Decisions(recorder.Selection{Brief: true})
	for i := range decisions {
		path := "/decisions/" + url.PathEscape(decisions[i].ID)
		asked[path] = path
	}
	for path, query := range asked {
		if out[path], err = c.ask(ctx, query); err != nil {
			return err
		}
	}
	if out["/assessment"], err = c.assessments.get(ctx, true, exportPatience); err != nil {
		return err
	}
	for read := 0.0; read < 1; {
		found, err := c.recorded.spend(ctx, recording)
		if err != nil {
			return err
		}
		out["/spend"] = found
		read = found.(Spend).Read
	}
	return e.add("present", out)
}

// allFound are all pods of a fleet, as the search finds them.
func allFound(f *top.Fleet) Found {
	out := Found{Pods: []FoundPod{}}
	for i := range f.Pods {
		p := f.Pods[i].Pod
		out.Pods = append(out.Pods, FoundPod{p.Namespace, p.Name, p.Spec.NodeName})
	}
	return out
}

// allPending are all pending workloads, and the names of all pods of each: the page filters them as the server does.
func (s *state) allPending() (Pending, [][]string) {
	out := s.pending(0, "")
	names := make([][]string, 0, out.Workloads)
	if s.report != nil {
		out.Groups = append([]PendingGroup{}, s.groups()...)
		for i := range out.Groups {
			names = append(names, out.Groups[i].names)
		}
	}
	return out, names
}

// ask is what the API answers to the page.
func (c *Console) ask(ctx context.Context, path string) (json.RawMessage, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, apiRoot+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	var w kept
	c.mux().ServeHTTP(&w, r)
	if code := cmp.Or(w.code, http.StatusOK); code != http.StatusOK {
		return nil, fmt.Errorf("%s: %d %s", path, code, w.body.String())
	}
	return w.body.Bytes(), nil
}

// kept is an answer in memory.
type kept struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (k *kept) Header() http.Header {
	if k.header == nil {
		k.header = http.Header{}
	}
	return k.header
}

func (k *kept) WriteHeader(code int) { k.code = code }

func (k *kept) Write(p []byte) (int, error) { return k.body.Write(p) }
