#!/usr/bin/env bash
# A real Hadoop file system for tests, on loopback: one name node and one data node of Hadoop 2.7.3, whose jars are
# those that the Python package pyspark 2.4.8 carries. Needs Java 8 to 17.
#
#   hdfs.sh install   downloads what is needed, once, into ${XDG_CACHE_HOME:-~/.cache}/voxelflow/servers
#   hdfs.sh serve     starts both, prints `ready hdfs://127.0.0.1:PORT` when blocks can be written, and serves until
#                     standard input ends; then it stops both by their ids and removes their data
#
# Blocks are small (1 MiB), so that a file of a few MiB has several.
set -euo pipefail

home="${XDG_CACHE_HOME:-$HOME/.cache}/voxelflow/servers"
hadoop="$home/hadoop-2.7.3"

# Becomes a class of Hadoop; Java 17 has to be told which of its insides Hadoop uses.
hadoop_java() {
    exec java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -Djava.net.preferIPv4Stack=true \
        -XX:+IgnoreUnrecognizedVMOptions \
        --add-opens=java.base/java.lang=ALL-UNNAMED --add-opens=java.base/java.net=ALL-UNNAMED \
        --add-opens=java.base/java.util=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED \
        --add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED \
        -cp "$data/conf:$hadoop/lib/*" "$@"
}

# Hadoop's settings for the folder $data. Ports are chosen by the servers themselves. WebHDFS stays off: it would
# need jars that the package does not carry.
configure() {
    mkdir -p "$data/conf"
    local kind
    for kind in hdfs datanode static; do
        mkdir -p "$data/conf/webapps/$kind/WEB-INF"
        echo '<web-app xmlns="http://java.sun.com/xml/ns/javaee" version="2.5"/>' > "$data/conf/webapps/$kind/WEB-INF/web.xml"
    done
    {
        echo '<configuration>'
        while read -r name value; do
            echo "<property><name>$name</name><value>$value</value></property>"
        done << EOF
dfs.webhdfs.enabled false
dfs.permissions.enabled false
dfs.replication 1
dfs.blocksize 1048576
dfs.namenode.fs-limits.min-block-size 65536
dfs.namenode.safemode.extension 0
dfs.namenode.name.dir file://$data/name
dfs.namenode.http-address 127.0.0.1:0
dfs.namenode.datanode.registration.ip-hostname-check false
dfs.datanode.data.dir file://$data/data
dfs.datanode.hostname 127.0.0.1
dfs.datanode.address 127.0.0.1:0
dfs.datanode.ipc.address 127.0.0.1:0
dfs.datanode.http.address 127.0.0.1:0
hadoop.tmp.dir $data/tmp
EOF
        echo '</configuration>'
    } > "$data/conf/hdfs-site.xml"
    printf '%s\n' 'log4j.rootLogger=INFO,err' 'log4j.appender.err=org.apache.log4j.ConsoleAppender' \
        'log4j.appender.err.target=System.err' 'log4j.appender.err.layout=org.apache.log4j.SimpleLayout' \
        > "$data/conf/log4j.properties"
}

install() {
    command -v java > /dev/null || { echo 'hdfs.sh: there is no java: install a runtime of Java 8 to 17' >&2; exit 1; }
    mkdir -p "$home"
    exec 9> "$home/hadoop.lock"
    flock 9
    [ -d "$hadoop" ] || download
    exec 9>&-
}

download() {
    local new
    new=$(mktemp -d "$home/hadoop.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    # An old package: its setup needs an old setuptools, and is asked for its name before it is downloaded.
    python3 -m venv "$new/venv" >&2
    "$new/venv/bin/pip" install -q --disable-pip-version-check 'setuptools<80' wheel >&2
    "$new/venv/bin/pip" download -q --disable-pip-version-check --no-deps --no-build-isolation \
        -d "$new/download" pyspark==2.4.8 >&2
    mkdir -p "$new/hadoop/lib"
    local jars=() jar
    for jar in hadoop-annotations hadoop-auth hadoop-common hadoop-hdfs commons guava-14 htrace-core-3 jackson-core-asl \
        jackson-mapper-asl javax.servlet-api javax.ws.rs-api jetty jsp-api leveldbjni log4j-1.2 netty protobuf-java-2.5 slf4j-api \
        slf4j-log4j12 xercesImpl xmlenc; do
        jars+=("*/deps/jars/$jar*")
    done
    tar xzf "$new/download/pyspark-2.4.8.tar.gz" -C "$new/hadoop/lib" --strip-components=3 --wildcards "${jars[@]}"
    # An empty file system, formatted once; every server starts from a copy.
    hadoop="$new/hadoop"
    data="$new/format"
    configure
    (hadoop_java org.apache.hadoop.hdfs.server.namenode.NameNode -fs hdfs://127.0.0.1:0 -format -force -nonInteractive) \
        > "$new/format.log" 2>&1 || { tail -n 20 "$new/format.log" >&2; exit 1; }
    cp -r "$data/name" "$new/hadoop/name"
    hadoop="$home/hadoop-2.7.3"
    mv "$new/hadoop" "$hadoop"
    rm -rf "$new"
    trap - EXIT
}

# Waits until a line of the log $1 has $2; fails when the server $3 ends first.
wait_for() {
    local _
    for _ in $(seq 1200); do
        grep -q "$2" "$1" && return 0
        kill -0 "$3" 2> /dev/null || break
        sleep 0.1
    done
    echo "hdfs.sh: no line with '$2' in $1" >&2
    tail -n 20 "$1" >&2
    return 1
}

stop() {
    local pid
    for pid in "${servers[@]}"; do
        kill "$pid" 2> /dev/null || true
    done
    for pid in "${servers[@]}"; do
        for _ in $(seq 50); do
            kill -0 "$pid" 2> /dev/null || break
            sleep 0.1
        done
        kill -9 "$pid" 2> /dev/null || true
    done
    rm -rf "$data"
}

serve() {
    install
    servers=()
    data=$(mktemp -d)
    trap stop EXIT
    trap 'exit 1' INT TERM HUP
    configure
    cp -r "$hadoop/name" "$data/name"
    hadoop_java org.apache.hadoop.hdfs.server.namenode.NameNode -fs hdfs://127.0.0.1:0 \
        > "$data/name.log" 2>&1 < /dev/null &
    servers+=($!)
    wait_for "$data/name.log" 'RPC up at' $!
    local port
    port=$(sed -n 's/.*RPC up at: .*:\([0-9]*\)$/\1/p' "$data/name.log" | head -n 1)
    hadoop_java org.apache.hadoop.hdfs.server.datanode.DataNode -fs "hdfs://127.0.0.1:$port" \
        > "$data/data.log" 2>&1 < /dev/null &
    servers+=($!)
    wait_for "$data/data.log" 'Successfully sent block report' $!
    echo "ready hdfs://127.0.0.1:$port"
    cat > /dev/null || true
}

case "${1:-}" in
    install | serve) "$1" ;;
    *)
        sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
        exit 2
        ;;
esac
