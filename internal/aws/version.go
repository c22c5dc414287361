package aws

import (
	"context"
	"errors"
	"strconv"
	"strings"
)

// The minor versions of Kubernetes 1 that this program is tested with.
const (
	oldestMinor = 26
	newestMinor = 36
)

// supported tells whether a version such as 1.33 is one of them.
func supported(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, err := strconv.Atoi(rest)
	return err == nil && major == "1" && minor >= oldestMinor && minor <= newestMinor
}

// setVersion notes the version of Kubernetes, and says once of each that is not supported that it is not.
func (c *Cloud) setVersion(version string) {
	c.mu.Lock()
	changed := version != c.version || !c.versionJudged
	c.version, c.versionJudged = version, true
	c.mu.Unlock()
	if changed && !supported(version) {
		c.cfg.Log.Error("this version of Kubernetes is not supported", "version", version,
			"oldest", "1."+strconv.Itoa(oldestMinor), "newest", "1."+strconv.Itoa(newestMinor))
	}
}

// readVersion asks the API server for its version, unless EKS is to tell it.
func (c *Cloud) readVersion(ctx context.Context) error {
	if c.cfg.VersionFromEKS || c.cfg.ServerVersion == nil {
		return nil
	}
	version, err := c.cfg.ServerVersion(ctx)
	if err == nil {
		c.setVersion(version)
	}
	return err
}

// RefreshVersion learns a new version of Kubernetes, and makes sure that the cluster's name still names this
// cluster. A failure keeps the old version; an error that is cloud.ErrIdentityMismatch must end all work.
func (c *Cloud) RefreshVersion(ctx context.Context) error {
	read := c.readVersion(ctx)
	asking, cancel := c.patienceWithEKS(ctx)
	defer cancel()
	described, err := c.describeCluster(asking)
	c.mu.RLock()
	local, without := c.local, c.withoutCluster
	c.mu.RUnlock()
	if err != nil {
		if without && !c.cfg.VersionFromEKS { // said at the start; there is nothing more to it
			err = nil
		}
		return errors.Join(read, err)
	}
	if err := c.compare(local, described); err != nil {
		return err
	}
	return errors.Join(read, c.learn(described))
}
