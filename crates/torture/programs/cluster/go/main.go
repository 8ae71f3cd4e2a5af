// go-redis writes to a cluster until its input ends, then reads all that was acknowledged.
//
//	go run . PORT
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	writers  = 4
	pause    = time.Millisecond
	patience = time.Minute
)

type acknowledged struct{ key, value string }

// What was seen of a cluster.
type seen struct {
	sync.Mutex
	all     []acknowledged
	errors  map[string]int
	longest time.Duration
}

func kind(err error) string {
	var network net.Error
	switch {
	case errors.As(err, &network) && network.Timeout():
		return "timeout"
	case errors.As(err, &network), errors.Is(err, io.EOF):
		return "network"
	default:
		return strings.SplitN(err.Error(), " ", 2)[0]
	}
}

func (s *seen) write(client *redis.ClusterClient, writer int, isOver *atomic.Bool) {
	for number := 1; !isOver.Load(); number++ {
		key, value := fmt.Sprintf("%d:%d", writer, number), fmt.Sprint(number)
		since := time.Now()
		err := client.Set(context.Background(), key, value, 0).Err()
		s.Lock()
		if err == nil {
			s.all = append(s.all, acknowledged{key, value})
		} else {
			s.errors[kind(err)]++
		}
		s.longest = max(s.longest, time.Since(since))
		s.Unlock()
		time.Sleep(pause)
	}
}

// A cluster may need a moment; what is not there is not there.
func read(client *redis.ClusterClient, key string) (string, error) {
	for until := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		value, err := client.Get(context.Background(), key).Result()
		if err == nil || errors.Is(err, redis.Nil) {
			return value, nil
		}
		if time.Now().After(until) {
			return "", err
		}
	}
}

func main() {
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:       []string{"127.0.0.1:" + os.Args[1]},
		ReadTimeout: 20 * time.Second,
	})
	var isOver atomic.Bool
	var group sync.WaitGroup
	s := &seen{errors: map[string]int{}}
	for writer := range writers {
		group.Add(1)
		go func() {
			defer group.Done()
			s.write(client, writer, &isOver)
		}()
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	isOver.Store(true)
	group.Wait()
	lost := 0
	for _, one := range s.all {
		value, err := read(client, one.key)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if value != one.value {
			lost++
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{
		"client":       "go-redis " + redis.Version(),
		"acknowledged": len(s.all),
		"errors":       s.errors,
		"lost":         lost,
		"longest_ms":   s.longest.Milliseconds(),
	})
}
