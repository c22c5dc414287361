package shadow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
)

const (
	// ConfigMapName is the name of the ConfigMap with the report.
	ConfigMapName = "dovetail-shadow"
	// reportKey has the Report, stateKey what the next process continues from.
	reportKey, stateKey = "report.json", "state.json"
	// maxStateBytes leaves room for the report in the 1 MiB of a ConfigMap.
	maxStateBytes = 700 << 10
	fieldManager  = "dovetail-shadow"
)

// errFormat means that a report has the fields of another version of the program.
var errFormat = errors.New("a shadow of this version begins anew and replaces it")

// ErrOverwritten means that somebody else has written the report since: another shadow in the namespace, most likely.
var ErrOverwritten = errors.New("somebody else has written it since, and this process goes on with that: " +
	"run one shadow in a namespace, with one replica")

// ConfigMap keeps a Ledger in the ConfigMap ConfigMapName of a namespace.
type ConfigMap struct {
	Client typedcorev1.ConfigMapInterface

	// version is the resource version that was read or written last; empty if there was none.
	version string
	// at is the time of the report that was read or written last.
	at time.Time
}

// Load continues what the ConfigMap has; a missing one changes nothing.
func (c *ConfigMap) Load(ctx context.Context, l *Ledger) error {
	found, err := c.Client.Get(ctx, ConfigMapName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.version = ""
		return nil
	}
	if err != nil {
		return fmt.Errorf("read ConfigMap %s: %w", ConfigMapName, err)
	}
	read, err := readState(found)
	if errors.Is(err, errFormat) {
		c.version = found.ResourceVersion // its numbers cannot be added to: the first Save replaces it
		return nil
	}
	if err != nil {
		return err
	}
	c.goOn(l, found, read)
	return nil
}

// goOn continues what another process has written.
func (c *ConfigMap) goOn(l *Ledger, found *corev1.ConfigMap, read state) {
	c.version, c.at = found.ResourceVersion, read.Report.At
	read.Report.Version = l.state.Report.Version
	l.state, l.proposed, l.memory = read, map[string]decision{}, pass.Memory{}
}

// readState returns what a process continues from.
func readState(found *corev1.ConfigMap) (read state, err error) {
	if err := json.Unmarshal([]byte(found.Data[stateKey]), &read); err != nil {
		return read, fmt.Errorf("ConfigMap %s: data[%q] is not of this program: %w; delete the ConfigMap to begin again", ConfigMapName, stateKey, err)
	}
	read.Report, err = ReadReport(found)
	return read, err
}

// Save writes the ConfigMap. It never overwrites what another shadow has written: the two would take turns with a report each, and
// neither would be of the whole time. It then continues what that one has, and returns ErrOverwritten.
func (c *ConfigMap) Save(ctx context.Context, l *Ledger) error {
	data, err := l.data()
	if err != nil {
		return err
	}
	refused := c.apply(ctx, l, data)
	if refused == nil || c.version == "" {
		return refused
	}
	found, err := c.Client.Get(ctx, ConfigMapName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.version = ""
	case err != nil || found.ResourceVersion == c.version:
		return refused
	default:
		c.version = found.ResourceVersion
		if read, err := readState(found); err == nil && !read.Report.At.Equal(c.at) {
			c.goOn(l, found, read)
			return fmt.Errorf("write ConfigMap %s: %w", ConfigMapName, ErrOverwritten)
		}
	}
	return c.apply(ctx, l, data) // it was deleted, or somebody has changed something else of it
}

// data is the ledger as the ConfigMap has it.
func (l *Ledger) data() (map[string]string, error) {
	report, err := l.state.Report.encoded(maxReportBytes)
	if err != nil {
		return nil, err
	}
	kept := l.state
	kept.Report = Report{} // it is in the other key
	rest, err := json.Marshal(kept)
	for _, drop := range []func(){
		func() { kept.Known = nil },   // after a restart, the nodes that there are then are taken as given
		func() { kept.Pending = nil }, // and what waits now may count again
	} {
		if err == nil && len(rest) > maxStateBytes {
			drop()
			rest, err = json.Marshal(kept)
		}
	}
	return map[string]string{reportKey: string(report), stateKey: string(rest)}, err
}

// apply writes the ConfigMap by server-side apply: one request, whether it exists or not, which names the ConfigMap, so that RBAC can
// allow this one and no other.
func (c *ConfigMap) apply(ctx context.Context, l *Ledger, data map[string]string) error {
	body, err := json.Marshal(corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: ConfigMapName, ResourceVersion: c.version},
		Data:       data,
	})
	if err != nil {
		return err
	}
	force := true
	options := metav1.PatchOptions{FieldManager: fieldManager, Force: &force}
	written, err := c.Client.Patch(ctx, ConfigMapName, types.ApplyPatchType, body, options)
	if err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", ConfigMapName, err)
	}
	c.version, c.at = written.ResourceVersion, l.state.Report.At
	return nil
}

// ReadReport reads the Report of the ConfigMap.
func ReadReport(m *corev1.ConfigMap) (r Report, err error) {
	text, found := m.Data[reportKey]
	if !found {
		return r, fmt.Errorf("ConfigMap %s/%s has no data[%q]: it is not of a shadow of Dovetail", m.Namespace, m.Name, reportKey)
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("ConfigMap %s/%s: data[%q]: %w", m.Namespace, m.Name, reportKey, err)
	}
	if r.Format != reportFormat {
		return r, fmt.Errorf("ConfigMap %s/%s: data[%q] has format %d, and this program reads format %d: %w",
			m.Namespace, m.Name, reportKey, r.Format, reportFormat, errFormat)
	}
	return r, nil
}
