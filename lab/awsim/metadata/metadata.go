// Package metadata simulates the metadata service of an instance, version 2: what a process on it learns of the region
// and of the role with credentials that it may use.
package metadata

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/credential"
)

// Instance is the instance that the service describes.
type Instance struct {
	ID, Type, ImageID, PrivateIP string
	AccountID, Region, Zone      string
	Architecture                 string
	// Role is the name of the role in the instance profile; empty if there is none.
	Role string
	// Credentials are new ones of that role.
	Credentials func() (credential.Credentials, error)
	Now         func() time.Time
}

// Service answers on 169.254.169.254, or wherever AWS_EC2_METADATA_SERVICE_ENDPOINT points. It is safe for concurrent
// use.
type Service struct {
	instance Instance

	mu     sync.Mutex
	tokens map[string]time.Time // until when each is good
}

// New returns the service of an instance.
func New(i Instance) *Service { return &Service{instance: i, tokens: map[string]time.Time{}} }

const (
	tokenPath  = "/latest/api/token"
	rolePath   = "/latest/meta-data/iam/security-credentials/"
	longestTTL = 21600 // seconds
)

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == tokenPath {
		s.issue(w, r)
		return
	}
	if r.Method != http.MethodGet {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if !s.good(r.Header.Get("X-Aws-Ec2-Metadata-Token")) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	text, ok := s.get(r.URL.Path)
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_, _ = w.Write([]byte(text)) // fails only if the client has disconnected
}

// issue answers the PUT that a session begins with.
func (s *Service) issue(w http.ResponseWriter, r *http.Request) {
	const header = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	ttl, err := strconv.Atoi(r.Header.Get(header))
	switch {
	case r.Method != http.MethodPut:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case err != nil || ttl < 1 || ttl > longestTTL:
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	token := make([]byte, 28)
	_, _ = rand.Read(token) // never fails
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[hex.EncodeToString(token)] = s.instance.Now().Add(time.Duration(ttl) * time.Second)
	w.Header().Set(header, strconv.Itoa(ttl))
	_, _ = w.Write([]byte(hex.EncodeToString(token)))
}

func (s *Service) good(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.tokens[token]
	return ok && s.instance.Now().Before(until)
}

func (s *Service) get(path string) (string, bool) {
	i := s.instance
	switch path {
	case "/latest/meta-data/instance-id":
		return i.ID, true
	case "/latest/meta-data/placement/region":
		return i.Region, true
	case "/latest/meta-data/placement/availability-zone":
		return i.Zone, true
	case "/latest/dynamic/instance-identity/document":
		return encode(map[string]string{
			"version": "2017-09-30", "accountId": i.AccountID, "region": i.Region, "availabilityZone": i.Zone, "instanceId": i.ID,
			"instanceType": i.Type, "imageId": i.ImageID, "privateIp": i.PrivateIP, "architecture": i.Architecture,
		})
	case rolePath, strings.TrimSuffix(rolePath, "/"):
		return i.Role, i.Role != ""
	case rolePath + i.Role:
		c, err := i.Credentials()
		if err != nil {
			return encode(map[string]string{"Code": "AssumeRoleUnauthorizedAccess", "Message": err.Error()})
		}
		return encode(map[string]string{
			"Code": "Success", "Type": "AWS-HMAC", "LastUpdated": i.Now().UTC().Format(time.RFC3339), "AccessKeyId": c.AccessKeyID,
			"SecretAccessKey": c.SecretAccessKey, "Token": c.SessionToken, "Expiration": c.Expiration.UTC().Format(time.RFC3339),
		})
	}
	return "", false
}

func encode(v map[string]string) (string, bool) {
	text, err := json.Marshal(v)
	return string(text), err == nil
}
