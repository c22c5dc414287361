package ekscluster

import (
	"context"
	"errors"
	"strconv"
	"strings"
)

// The minor versions of Kubernetes 1 that this program is tested with.
const (
	oldestMinor = 26
	newestMinor = 37
)

// KubernetesVersion is the minor version, such as 1.33, that images are chosen for.
func (c *Cluster) KubernetesVersion() string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.version
}

// RefreshVersion reads the version of Kubernetes again, and checks again that the cluster's name is this cluster's. A failure
// keeps the last version. After a cloudprovider.ErrIdentityMismatch, the process must stop.
func (c *Cluster) RefreshVersion(ctx context.Context) error {
	serverErr := c.readServerVersion(ctx)
	limited, cancel := c.withOptionalTimeout(ctx)
	defer cancel()
	described, err := c.describe(limited)
	c.mu.RLock()
	local, without := c.local, c.withoutEKS
	c.mu.RUnlock()
	if err != nil {
		if without && !c.cfg.VersionFromEKS { // Discover has logged it
			err = nil
		}
		return errors.Join(serverErr, err)
	}
	if err := c.accept(ctx, local, described); err != nil {
		return errors.Join(serverErr, err)
	}
	return serverErr
}

// readServerVersion reads the version from the API server, unless it comes from EKS.
func (c *Cluster) readServerVersion(ctx context.Context) error {
	if c.cfg.VersionFromEKS || c.cfg.ServerVersion == nil {
		return nil
	}
	version, err := c.cfg.ServerVersion(ctx)
	if err == nil {
		c.setVersion(version)
	}
	return err
}

// setVersion stores the version of Kubernetes, and logs once of each version that is not supported.
func (c *Cluster) setVersion(version string) {
	c.mu.Lock()
	changed := version != c.version || !c.versionJudged
	c.version, c.versionJudged = version, true
	c.mu.Unlock()
	if changed && !supported(version) {
		c.cfg.Log.Error("this version of Kubernetes is not supported", "version", version,
			"oldest", "1."+strconv.Itoa(oldestMinor), "newest", "1."+strconv.Itoa(newestMinor))
	}
}

// supported reports whether a version such as 1.33 is one of those.
func supported(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, err := strconv.Atoi(rest)
	return err == nil && major == "1" && minor >= oldestMinor && minor <= newestMinor
}
